"""Seconds of 200 rounds with 2 clients on loopback, in FederatedScope (FS).

The plugin over its own streams, beside stock FS over its own gRPC messages. Clients
train a head 512 -> 10 on one batch, so what is timed is what carries the messages. FS
must be importable: PYTHONPATH=<its checkout>.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from fs_runs import OURS, THEIRS, runner_of
from measure import ratio, report
from torch.utils.data import TensorDataset

from federatedscope_ggeur.data import DataSet, Domain, Embeddings, register_reader
from federatedscope_ggeur.engines.fs import register
from federatedscope_ggeur.rng import torch_generator

CLIENTS, DIM, CLASSES, ROWS = 2, 512, 10, 16
OF_ALL = [
    "federate.mode", "distributed",
    "federate.client_num", CLIENTS,
    "distribute.use", True,
    "distribute.server_host", "127.0.0.1",
    "distribute.client_host", "127.0.0.1",
    "dataloader.batch_size", ROWS,
]  # fmt: skip
SIDES = {
    "ours": [*OURS, "data.splitter", "iid"],
    "FS": [*THEIRS, "model.out_channels", CLASSES],
}


def rows(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch_generator(number, "benchmarks", "distributed")
    features = torch.randn(ROWS, DIM, generator=generator)
    return features, torch.arange(ROWS) % CLASSES


def register_data() -> None:
    from federatedscope.core.data import ClientData
    from federatedscope.register import register_data as register_fs_data

    @register_reader("benchmark")
    def read(root, splits, seed):
        parts = [Embeddings(*rows(k), f"d{k}") for k in range(CLIENTS)]
        domains = tuple(Domain(part.domain, part, part) for part in parts)
        return DataSet(domains, tuple("0123456789"), "synthetic")

    def load(config, client_cfgs=None):
        if config.data.type != "benchmark":
            return None
        data = TensorDataset(*rows(max(0, config.distribute.data_idx)))
        return ClientData(config, train=data, test=data), config

    register_fs_data("benchmark", load)


def run_worker(settings: list, role: list, results) -> None:
    """One process of a run; the server says how many seconds it took."""
    logging.disable(logging.WARNING)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    with tempfile.TemporaryDirectory() as folder:
        runner = runner_of([*OF_ALL, *settings, *role], folder)
        leads = "server" in role
        if leads:
            time.sleep(2)  # it listens already; the clients join meanwhile
        started = time.perf_counter()
        runner.run()
        if leads:
            results.put(time.perf_counter() - started)


def seconds(settings: list, rounds: int) -> float:
    """Wall seconds from the server's being ready to the end of the run."""
    # Forked: all have imported everything, so nobody waits for another to start.
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    every = ["federate.total_round_num", rounds, "eval.freq", rounds]
    ports = [free_port() for _ in range(CLIENTS + 1)]
    processes = []
    for index in range(CLIENTS + 1):
        role = [
            "distribute.role", "client" if index else "server",
            "distribute.data_idx", index,
            "distribute.server_port", ports[0],
            "distribute.client_port", ports[index],
        ]  # fmt: skip
        processes.append(
            context.Process(
                target=run_worker, args=([*settings, *every], role, results)
            )
        )
        processes[-1].start()
        if index == 0:
            time.sleep(1)  # stock FS clients wait for ever if they are first
    try:
        return results.get(timeout=600)
    finally:
        for process in processes:
            process.join(10)
            process.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--csv", type=Path, help="write the table to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    register()
    register_data()
    taken: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(args.repeats):
        for name, settings in SIDES.items():
            taken[name].append(seconds(settings, args.rounds))
    row = {
        "rounds": args.rounds,
        "plugin s": f"{median(taken['ours']):.2f}",
        "stock FS s": f"{median(taken['FS']):.2f}",
        "times faster": ratio(taken["FS"], taken["ours"]),
    }
    report([row], args.csv)


if __name__ == "__main__":
    main()
