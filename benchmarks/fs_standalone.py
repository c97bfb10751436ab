"""Seconds of a federated round inside FederatedScope's (FS's) standalone mode.

The plugin's trainer and FS's general trainer do the same local training: 4 clients of
3,250 rows (S1, 50 a class), a linear head 512 -> 65, one epoch, batches of 16. FS must
be importable: PYTHONPATH=<its checkout>.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from fs_runs import OURS, THEIRS, runner_of
from measure import ratio, report
from torch.utils.data import TensorDataset
from workloads import DIM, OFFICE_HOME, S1_CLASSES, embeddings

from federatedscope_ggeur.data import DataSet, Domain, Embeddings, register_reader
from federatedscope_ggeur.engines.fs import register

ROWS_A_CLASS, TEST_ROWS_A_CLASS = 50, 5
OPTIMIZERS = {
    "SGD": ["train.optimizer.lr", 0.01],
    "Adam": ["train.optimizer.lr", 0.001],
}
OF_ALL = [
    "seed", 0,
    "federate.client_num", len(OFFICE_HOME),
    "dataloader.batch_size", 16,
]  # fmt: skip
SIDES = {
    "ours": [*OURS, "data.splitter", "domain"],
    "FS": [*THEIRS, "model.out_channels", S1_CLASSES],
}


def rows(per_class: int, seed: int):
    counts = torch.full((len(OFFICE_HOME), S1_CLASSES), per_class)
    return embeddings(counts, DIM, seed)


def register_data() -> None:
    """The same rows for both: a reader of the plugin, a data function of FS."""
    from federatedscope.core.data import ClientData, StandaloneDataDict
    from federatedscope.register import register_data as register_fs_data

    train, test = rows(ROWS_A_CLASS, 0), rows(TEST_ROWS_A_CLASS, 0)

    @register_reader("benchmark")
    def read(root, splits, seed):
        parts = enumerate(zip(train, test))
        domains = [
            Domain(f"d{k}", Embeddings(*a, f"d{k}"), Embeddings(*b, f"d{k}"))
            for k, (a, b) in parts
        ]
        names = tuple(f"class {c}" for c in range(S1_CLASSES))
        return DataSet(tuple(domains), names, "synthetic")

    def load(config, client_cfgs=None):
        if config.data.type != "benchmark":
            return None
        data = {
            k: ClientData(config, train=TensorDataset(*a), test=TensorDataset(*b))
            for k, (a, b) in enumerate(zip(train, test), start=1)
        }
        return StandaloneDataDict(data, config), config

    register_fs_data("benchmark", load)


def seconds_a_round(settings: list, rounds: int) -> tuple[float, float]:
    """CPU seconds of a round in FS's standalone runner, and the final accuracy."""
    every = ["federate.total_round_num", rounds, "eval.freq", rounds]
    with tempfile.TemporaryDirectory() as folder:
        runner = runner_of([*OF_ALL, *every, *settings], folder)
        started = time.process_time()
        best = runner.run()
        spent = time.process_time() - started
    summary = best.get("server_global_eval") or best["client_summarized_weighted_avg"]
    return spent / rounds, float(summary["test_acc"])


def compare(optimizer: str, rounds: int, repeats: int) -> dict:
    choice = ["train.optimizer.type", optimizer, *OPTIMIZERS[optimizer]]
    seconds: dict[str, list[float]] = {name: [] for name in SIDES}
    accuracy = {}
    for repeat in range(repeats + 1):
        for name, settings in SIDES.items():
            spent, accuracy[name] = seconds_a_round([*settings, *choice], rounds)
            if repeat:  # the first warms up
                seconds[name].append(spent)
    return {
        "optimiser": optimizer,
        "plugin s/round": f"{median(seconds['ours']):.3f}",
        "FS general s/round": f"{median(seconds['FS']):.3f}",
        "times faster": ratio(seconds["FS"], seconds["ours"]),
        "accuracy plugin / FS": f"{accuracy['ours']:.3f} / {accuracy['FS']:.3f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--csv", type=Path, help="write the table to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    register()
    register_data()
    logging.disable(logging.WARNING)
    report([compare(o, args.rounds, args.repeats) for o in OPTIMIZERS], args.csv)


if __name__ == "__main__":
    main()
