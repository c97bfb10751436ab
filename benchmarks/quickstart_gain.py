"""GGEUR minus FedAvg on the quickstart digits, at equal steps and equal rate.

Every run takes the same number of mini-batch steps at the same rate from the same
initial head on the same rows, so what differs is what the batches are drawn from. The
size of a run was set beforehand; nothing is tuned on the test digits.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean

from measure import report, standard_error

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import load_federated_data, run

CONFIG = (
    Path(__file__).parents[1] / "scripts/example_configs/ggeur_quickstart.yaml"
).resolve()
SPLITTERS = {"domain": "[]", "lds": "[{'alpha': 0.1}]"}
STEPS = {"FedAvg": "[]", "step 1": "[1]", "steps 1+2": "[1, 2]"}


def settings(splitter: str, steps: str, min_samples: int, seed: int, args) -> list[str]:
    return [
        *("seed", str(seed)),
        *("data.splitter", splitter),
        *("data.splitter_args", SPLITTERS[splitter]),
        *("train.batch_or_epoch", "batch"),
        *("train.local_update_steps", str(args.local_steps)),
        *("federate.total_round_num", str(args.rounds)),
        *("ggeur.steps", steps),
        *("ggeur.privacy.min_samples", str(min_samples)),
    ]


def scores(splitter: str, steps: str, min_samples: int, data, args):
    """AVG and STD in percent for each seed."""
    finals = []
    for seed in range(args.seeds):
        overrides = settings(splitter, steps, min_samples, seed, args)
        finals.append(run(load_config(CONFIG, overrides), data[seed]).final)
    return [100 * final.avg for final in finals], [100 * final.std for final in finals]


def compare(splitter: str, args) -> list[dict[str, object]]:
    data = [
        load_federated_data(
            load_config(CONFIG, settings(splitter, "[]", 1, seed, args))
        )
        for seed in range(args.seeds)
    ]
    baseline = scores(splitter, STEPS["FedAvg"], 1, data, args)
    rows = []
    for min_samples in args.min_samples:
        for name, steps in STEPS.items():
            avg, std = (
                baseline  # FedAvg sends no statistics: no threshold
                if name == "FedAvg"
                else scores(splitter, steps, min_samples, data, args)
            )
            gain = [a - b for a, b in zip(avg, baseline[0])]
            rows.append(
                {
                    "splitter": splitter,
                    "min_samples": min_samples,
                    "training set": name,
                    "AVG %": f"{fmean(avg):.2f}",
                    "AVG s.e.": f"{standard_error(avg):.2f}",
                    "STD %": f"{fmean(std):.2f}",
                    "gain": f"{fmean(gain):+.2f}",
                    "gain s.e.": f"{standard_error(gain):.2f}",
                    "gain by seed": " ".join(f"{g:+.2f}" for g in gain),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--local-steps", type=int, default=50, help="mini-batches")
    parser.add_argument("--min-samples", type=int, nargs="+", default=[5, 1])
    parser.add_argument("--quick", action="store_true", help="2 seeds, 5 rounds")
    parser.add_argument("--csv", help="write the table to this file")
    args = parser.parse_args()
    if args.quick:
        args.seeds, args.rounds = 2, 5
    report([row for name in SPLITTERS for row in compare(name, args)], args.csv)


if __name__ == "__main__":
    main()
