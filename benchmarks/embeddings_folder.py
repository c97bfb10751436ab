"""GGEUR against FedAvg on a folder of embeddings (`embeddings@ggeur`).

Rows: FedAvg for one local epoch, FedAvg at as many local mini-batches as GGEUR takes,
step 1, steps 1+2; then, with --leave-out, the same with each domain left out in turn,
scored on that domain. Mean over seeds of AVG and STD, and of AVG's gain over FedAvg at
equal local steps, paired by seed, with its standard error. Where --alpha,
--min-per-class or --min-samples have several values, all of this for each of them.

    python benchmarks/embeddings_folder.py --root FOLDER --splitter lds --alpha 0.1
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product, starmap
from pathlib import Path

from measure import report

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import run

QUICKSTART = (
    Path(__file__).parent.parent
    / "scripts"
    / "example_configs"
    / "ggeur_quickstart.yaml"
)


def methods(options) -> dict[str, list[str]]:
    """Settings of each row of the table."""
    equal = ["train.batch_or_epoch", "batch"]
    equal += ["train.local_update_steps", str(options.local_steps)]
    return {
        "FedAvg, 1 epoch": ["ggeur.steps", "[]"],
        "FedAvg, equal steps": ["ggeur.steps", "[]", *equal],
        "step 1": ["ggeur.steps", "[1]", *equal],
        "steps 1+2": ["ggeur.steps", "[1, 2]", *equal],
    }


@dataclass(frozen=True)
class Case:
    """What the rows of one table have in common."""

    splitter_args: dict[str, float]
    min_samples: int
    unseen: list[str]

    @property
    def columns(self) -> dict[str, object]:
        scored_on = f"{self.unseen[0]} (left out)" if self.unseen else "all domains"
        named = {"min_samples": self.min_samples, "scored on": scored_on}
        return {**self.splitter_args, **named}


def cases(options) -> Iterator[Case]:
    arguments = [{"fraction": options.fraction}]
    if options.splitter != "domain":
        pairs = product(options.alpha, options.min_per_class)
        arguments = [{"alpha": alpha, "min_per_class": n} for alpha, n in pairs]
    unseen = [[], *([domain] for domain in options.leave_out)]
    return starmap(Case, product(arguments, options.min_samples, unseen))


def settings(options, case: Case, seed: int) -> list[str]:
    unseen = case.unseen
    chosen = {
        "seed": seed,
        "data.type": "embeddings@ggeur",
        "data.root": options.root,
        "data.splitter": options.splitter,
        "data.splitter_args": [case.splitter_args],
        "federate.client_num": options.clients - (len(unseen) if unseen else 0),
        "federate.total_round_num": options.rounds,
        "dataloader.batch_size": options.batch_size,
        "train.optimizer.lr": options.lr,
        "ggeur.space": options.space,
        "eval.freq": max(1, options.rounds // 10),
        "ggeur.prototypes": options.prototypes,
        "ggeur.privacy.min_samples": case.min_samples,
        "ggeur.step1_size": options.step1_size,
        "ggeur.step2_size": options.step2_size,
        "ggeur.unseen_domains": unseen,
        "federate.make_global_eval": True,
    }
    return [str(part) for pair in chosen.items() for part in pair]


def table(options, case: Case) -> list[dict]:
    unseen = case.unseen
    scores: dict[str, list[tuple[float, float]]] = {}
    for name, extra in methods(options).items():
        for seed in range(options.seeds):
            chosen = settings(options, case, seed)
            final = run(load_config(QUICKSTART, chosen + extra)).final
            score = final.accuracy[unseen[0]] if unseen else final.avg
            scores.setdefault(name, []).append((score, final.std))
            where = [*case.columns.values(), name, f"seed {seed}", f"{score:.4f}"]
            print(*where, file=sys.stderr)
    baseline = scores["FedAvg, equal steps"]
    rows = []
    for name, found in scores.items():
        gains = [mine[0] - theirs[0] for mine, theirs in zip(found, baseline)]
        error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
        rows.append(
            {
                **case.columns,
                "method": name,
                "AVG %": f"{100 * statistics.fmean(s[0] for s in found):.2f}",
                "STD %": f"{100 * statistics.fmean(s[1] for s in found):.2f}",
                "gain": f"{100 * statistics.fmean(gains):+.2f}",
                "s.e.": f"{100 * error:.2f}",
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", required=True)
    parser.add_argument("--splitter", default="domain")
    parser.add_argument("--fraction", type=float, default=0.3)
    parser.add_argument("--alpha", type=float, nargs="+", default=[0.1])
    parser.add_argument("--min-per-class", type=int, nargs="+", default=[0])
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--local-steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--space", default="standard")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--step1-size", type=int, default=200)
    parser.add_argument("--step2-size", type=int, default=200)
    parser.add_argument("--prototypes", default="domain")
    parser.add_argument("--min-samples", type=int, nargs="+", default=[5])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="DOMAIN")
    parser.add_argument("--csv", help="write the table to this file")
    options = parser.parse_args()
    rows = [row for case in cases(options) for row in table(options, case)]
    report(rows, options.csv)


if __name__ == "__main__":
    main()
