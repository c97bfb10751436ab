"""Seconds of a run with one and with two workers, in turns: `ggeur.workers`.

Short runs of the shape of the paper's Office-Home: 4 clients, 65 classes, the paper's
sizes of augmented sets (about 64,500 rows a client), batches of 16; by default one
round. Heads must be equal to the bit. It takes two idle cores, and the wall time
counts.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import torch
from measure import ratio, report
from workloads import OFFICE_HOME, s1

from federatedscope_ggeur import FederatedData, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--csv")
    options = parser.parse_args()
    data = office_home()
    seconds: dict[int, list[float]] = {1: [], options.workers: []}
    heads = set()
    for _ in range(options.repeats):
        for workers, spent in seconds.items():
            started = time.perf_counter()
            results = run(settings(options.rounds, workers), data)
            spent.append(time.perf_counter() - started)
            heads.add(results.final.head_sha256)
    row = {
        "rounds": options.rounds,
        "workers": options.workers,
        "1 worker (s)": f"{median(seconds[1]):.1f}",
        "all workers (s)": f"{median(seconds[options.workers]):.1f}",
        "times as fast": ratio(seconds[1], seconds[options.workers]),
        "equal heads": len(heads) == 1,
    }
    report([row], options.csv)


def office_home() -> FederatedData:
    """S1 of workloads.py, a client a domain."""
    parts = s1()
    sizes = torch.tensor([len(labels) for _, labels in parts])
    return FederatedData.from_arrays(
        torch.cat([features for features, _ in parts]),
        torch.cat([labels for _, labels in parts]),
        clients=torch.arange(len(OFFICE_HOME)).repeat_interleave(sizes),
    )


def settings(rounds: int, workers: int) -> dict:
    """The paper's Office-Home settings, with every class sent."""
    return {
        "federate": {"method": "ggeur", "total_round_num": rounds, "client_num": 4},
        "data": {"type": "embeddings@ggeur", "root": "given", "splitter": "natural"},
        "dataloader": {"batch_size": 16},
        "train": {
            "local_update_steps": 10,
            "batch_or_epoch": "epoch",
            "optimizer": {"type": "Adam", "lr": 0.001},
        },
        "ggeur": {
            "use": True,
            "steps": [1, 2],
            "prototypes": "client",
            "workers": workers,
            "privacy": {"min_samples": 1},
        },
    }


if __name__ == "__main__":
    main()
