"""FedAvg on image networks: digits in four domains, and photographs.

`--digits`: `network_quickstart.yaml` by norm, over seeds, AVG of the last five
evaluated rounds. `--office FOLDER`: Office-Caltech photographs (of the domains that are
there) at 64 x 64 on a narrow setting, to show that the way from files to scores is
open; so few photographs of so few domains say nothing of a method. networks_fedfa.py
and networks_fedpg.py have what builds on it, networks_cost.py what a step costs.

    python benchmarks/networks.py --digits
    python benchmarks/networks.py --office FOLDER
"""

from __future__ import annotations

import argparse
from statistics import fmean

from measure import report, standard_error

from federatedscope_ggeur import run

CONFIG = "network_quickstart"
NORMS = ("group", "batch")


def row(name: str, finals: list) -> dict[str, object]:
    """Mean and standard error of AVG over seeds, and each domain's mean, in %."""
    scores = [100 * final.avg for final in finals]
    error = standard_error(scores)
    domains = {
        domain: f"{fmean(100 * final.accuracy[domain] for final in finals):.1f}"
        for domain in finals[0].accuracy
    }
    seconds = fmean(final.seconds for final in finals)
    return {
        "run": name,
        "AVG %": f"{fmean(scores):.2f}",
        "s.e.": f"{error:.2f}",
        "by seed": " ".join(f"{score:.1f}" for score in scores),
        **domains,
        "seconds": f"{seconds:.0f}",
    }


def digits(seeds: int) -> list[dict[str, object]]:
    return [
        row(
            f"digits_cnn, {norm} norm",
            [
                run(
                    CONFIG,
                    overrides={
                        "seed": seed,
                        "ggeur.network.norm": norm,
                        "dataloader.drop_last": norm == "batch",
                    },
                ).final
                for seed in range(seeds)
            ],
        )
        for norm in NORMS
    ]


def office(folder: str, seeds: int, rounds: int) -> list[dict[str, object]]:
    settings = {
        "data.type": "office_caltech@ggeur",
        "data.root": folder,
        "data.splitter": "domain",
        "federate.client_num": 2,
        "federate.total_round_num": rounds,
        "train.local_update_steps": 1,
        "train.optimizer.lr": 0.02,
        "ggeur.encoder.image_size": 64,
        "ggeur.network.name": "convnet5",
    }
    finals = [
        run(CONFIG, overrides={**settings, "seed": s}).final for s in range(seeds)
    ]
    return [row(f"convnet5 at 64 x 64, {rounds} rounds", finals)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--digits", action="store_true")
    parser.add_argument("--office", metavar="FOLDER")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=20, help="of --office")
    parser.add_argument("--csv", help="write the table to this file")
    args = parser.parse_args()
    if not (args.digits or args.office):
        parser.error("say what is to be run: --digits, --office FOLDER")
    rows = digits(args.seeds) if args.digits else []
    rows += office(args.office, args.seeds, args.rounds) if args.office else []
    report(rows, args.csv)


if __name__ == "__main__":
    main()
