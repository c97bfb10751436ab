"""Seconds of a round with 4 clients on this machine: the same run on three engines.

Embedded, FederatedScope (FS) distributed with a process for each client, and Flower
with its SuperLink, and a SuperNode and a resident for each client. Two sizes: the
quickstart's head, and a hidden layer whose weights make a message of 10 MB each way.
A round is training and the server's evaluation, as results.json has it; the start is
all other seconds of the command but those of round 0. The engines run in turn.
FEDERATEDSCOPE_HOME names FS's checkout; the package must have its extra [flower].
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

import numpy as np
from fs_distributed import free_port
from measure import report

from federatedscope_ggeur.reporting import read_results

CLIENTS, DIM, CLASSES, ROWS = 4, 512, 10, 40
#: Hidden units whose weights [512, H] are 10 MB.
HIDDEN = 5000
PLAIN = ["ggeur.steps", "[]", "ggeur.space", "raw", "federate.client_num", str(CLIENTS)]


def embeddings(folder: Path) -> list[str]:
    """Settings of a run on synthetic embeddings, a domain for each client."""
    rng = np.random.default_rng(0)
    for k in range(CLIENTS):
        features = rng.normal(size=(ROWS, DIM)).astype("float32")
        np.savez(
            folder / f"d{k}.npz", features=features, labels=np.arange(ROWS) % CLASSES
        )
    data = ["data.type", "embeddings@ggeur", "data.root", str(folder)]
    return [*data, "ggeur.mlp_hidden_dim", str(HIDDEN), "train.optimizer.lr", "0.001"]


def ggeur(*words: str) -> list[str]:
    return [sys.executable, "-m", "federatedscope_ggeur", *words]


def embedded(settings: list[str]) -> None:
    call([ggeur("--cfg", "ggeur_quickstart.yaml", *settings)])


def flower(settings: list[str]) -> None:
    command = ["--engine", "flower", "--cfg", "ggeur_quickstart.yaml"]
    call([ggeur(*command, *settings)])


def federatedscope(settings: list[str]) -> None:
    port, commands = str(free_port()), []
    for k in range(CLIENTS + 1):
        own = ["federate.mode", "distributed", "distribute.use", "True"]
        own += ["distribute.server_host", "127.0.0.1", "distribute.server_port", port]
        own += ["distribute.role", "client" if k else "server"]
        own += ["distribute.data_idx", str(k), "distribute.client_port", "0"]
        if k:
            own += ["expname", f"client{k}"]
        words = ["--engine", "federatedscope", "--cfg", "ggeur_quickstart.yaml"]
        commands.append(ggeur(*words, *settings, *own))
    call(commands)


def call(commands: list[list[str]]) -> None:
    """Run all at once, to the end."""
    running = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for command in commands
    ]
    for process in running:
        error = process.communicate(timeout=900)[1]
        if process.returncode:
            sys.exit(error.decode(errors="replace")[-2000:])


ENGINES = {"embedded": embedded, "FS": federatedscope, "Flower": flower}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--csv", type=Path, help="write the table to this file")
    args = parser.parse_args()
    taken: dict[tuple[str, str], list[tuple[list[float], float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        (data := Path(folder, "data")).mkdir()
        sizes = {"quickstart": [], "10 MB": embeddings(data)}
        for repeat in range(args.repeats):
            for size, settings in sizes.items():
                for name, engine in ENGINES.items():
                    out = Path(folder, f"{name} {size} {repeat}")
                    rounds = ["federate.total_round_num", str(args.rounds)]
                    began = time.perf_counter()
                    engine([*PLAIN, *settings, *rounds, "outdir", str(out)])
                    whole = time.perf_counter() - began
                    results = read_results(out / "ggeur_quickstart")
                    seconds = [record.seconds for record in results.rounds]
                    start = whole - sum(seconds) - results.round0.seconds
                    taken[size, name].append((seconds, start))
    rows = []
    for (size, name), runs in taken.items():
        every = [one for seconds, _ in runs for one in seconds]
        rows.append(
            {
                "size": size,
                "engine": name,
                "round s": f"{median(every):.2f}",
                "least": f"{min(every):.2f}",
                "most": f"{max(every):.2f}",
                "start and end s": f"{median(start for _, start in runs):.1f}",
                "cores": os.cpu_count(),
            }
        )
    report(rows, args.csv)


if __name__ == "__main__":
    main()
