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
SHARED = [
    "seed", 0,
    "federate.client_num", len(OFFICE_HOME),
    "federate.make_global_eval", False,
    "early_stop.patience", 0,
    "dataloader.batch_size", 16,
    "criterion.type", "CrossEntropyLoss",
    "train.local_update_steps", 1,
    "train.batch_or_epoch", "epoch",
    "eval.split", ["test"],
    "eval.metrics", ["acc", "correct"],
    "eval.best_res_update_round_wise_key", "test_acc",
    "eval.count_flops", False,
]  # fmt: skip
OURS = [
    "federate.method", "ggeur",
    "data.type", "benchmark@ggeur",
    "data.splitter", "domain",
    "data.splits", [0.7, 0.0, 0.3],
    "model.type", "ggeur_head",
    "trainer.type", "ggeur_trainer",
    "ggeur.use", True,
    "ggeur.steps", [],
]  # fmt: skip
THEIRS = [
    "federate.method", "FedAvg",
    "data.type", "benchmark",
    "model.type", "lr",
    "model.out_channels", S1_CLASSES,
    "trainer.type", "general",
]  # fmt: skip


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
    from federatedscope.core.auxiliaries.data_builder import get_data
    from federatedscope.core.auxiliaries.runner_builder import get_runner
    from federatedscope.core.auxiliaries.worker_builder import (
        get_client_cls,
        get_server_cls,
    )
    from federatedscope.core.configs.config import global_cfg

    cfg = global_cfg.clone()
    with tempfile.TemporaryDirectory() as folder:
        cfg.outdir = folder
        every = ["federate.total_round_num", rounds, "eval.freq", rounds]
        cfg.merge_from_list([*SHARED, *every, *settings])
        data, changed = get_data(cfg.clone())
        cfg.merge_from_other_cfg(changed)
        cfg.freeze(inform=False)
        runner = get_runner(
            data=data,
            server_class=get_server_cls(cfg),
            client_class=get_client_cls(cfg),
            config=cfg.clone(),
        )
        started = time.process_time()
        best = runner.run()
        spent = time.process_time() - started
    summary = best.get("server_global_eval") or best["client_summarized_weighted_avg"]
    return spent / rounds, float(summary["test_acc"])


def compare(optimizer: str, rounds: int, repeats: int) -> dict:
    choice = ["train.optimizer.type", optimizer, *OPTIMIZERS[optimizer]]
    sides = {"ours": [*OURS, *choice], "FS": [*THEIRS, *choice]}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    accuracy = {}
    for repeat in range(repeats + 1):
        for name, settings in sides.items():
            spent, accuracy[name] = seconds_a_round(settings, rounds)
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
