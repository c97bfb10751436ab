"""GGEUR against FedAvg on a folder of embeddings (`embeddings@ggeur`).

Rows: FedAvg for one local epoch, FedAvg at as many local mini-batches as GGEUR takes,
step 1, steps 1+2; then, with --leave-out, the same with each domain left out in turn,
scored on that domain. Mean over seeds of AVG and STD, and of AVG's gain over FedAvg at
equal local steps, paired by seed, with its standard error.

    python benchmarks/embeddings_folder.py --root FOLDER --splitter lds --alpha 0.1
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from pathlib import Path

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


def settings(options, seed: int, unseen: list[str]) -> list[str]:
    arguments = {"fraction": options.fraction}
    if options.splitter != "domain":
        arguments = {"alpha": options.alpha}
    chosen = {
        "seed": seed,
        "data.type": "embeddings@ggeur",
        "data.root": options.root,
        "data.splitter": options.splitter,
        "data.splitter_args": [arguments],
        "federate.client_num": options.clients - (len(unseen) if unseen else 0),
        "federate.total_round_num": options.rounds,
        "dataloader.batch_size": options.batch_size,
        "train.optimizer.lr": options.lr,
        "eval.freq": max(1, options.rounds // 10),
        "ggeur.prototypes": options.prototypes,
        "ggeur.privacy.min_samples": options.min_samples,
        "ggeur.step1_size": options.step1_size,
        "ggeur.step2_size": options.step2_size,
        "ggeur.unseen_domains": unseen,
        "federate.make_global_eval": True,
    }
    return [str(part) for pair in chosen.items() for part in pair]


def table(options, unseen: list[str]) -> list[dict]:
    scores: dict[str, list[tuple[float, float]]] = {}
    for name, extra in methods(options).items():
        for seed in range(options.seeds):
            cfg = load_config(QUICKSTART, settings(options, seed, unseen) + extra)
            final = run(cfg).final
            score = final.accuracy[unseen[0]] if unseen else final.avg
            scores.setdefault(name, []).append((score, final.std))
            print(f"{unseen or 'all'} {name} seed {seed}: {score:.4f}", file=sys.stderr)
    baseline = scores["FedAvg, equal steps"]
    rows = []
    for name, found in scores.items():
        gains = [mine[0] - theirs[0] for mine, theirs in zip(found, baseline)]
        error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
        rows.append(
            {
                "scored on": unseen[0] + " (left out)" if unseen else "all domains",
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
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--local-steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--step1-size", type=int, default=200)
    parser.add_argument("--step2-size", type=int, default=200)
    parser.add_argument("--prototypes", default="domain")
    parser.add_argument("--min-samples", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="DOMAIN")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    rows = table(options, [])
    for domain in options.leave_out:
        rows += table(options, [domain])
    for row in [dict(zip(rows[0], rows[0])), *rows]:
        widths = (26, 22, 8, 8, 8, 6)
        print("".join(f"{value:<{w}}" for value, w in zip(row.values(), widths)))
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
