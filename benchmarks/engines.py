"""Seconds a round of engines: embedded, FederatedScope (FS) distributed, and Flower.

Four clients on loopback: the quickstart's digits, and a head of 10 MB that trains one
step on a few rows, so that what is timed is what carries it. Start-up is apart: it is
all of the command's time that is in no round. Needs Python 3.11, flwr[simulation] and
the extra [federatedscope], and FEDERATEDSCOPE_HOME=<a checkout of FS>.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from measure import ratio, report

from federatedscope_ggeur.reporting import read_results

SCRIPTS = Path(__file__).parent.parent / "scripts"
QUICKSTART = SCRIPTS / "example_configs" / "ggeur_quickstart.yaml"
PACKAGE = [sys.executable, "-m", "federatedscope_ggeur"]
ENGINES = {
    "embedded": PACKAGE,
    "FS distributed": [sys.executable, str(SCRIPTS / "run_distributed.py")],
    "Flower, simulation": [*PACKAGE, "flower-app", "app"],
}
CLIENTS = 4
DIM, CLASSES = 4096, 640  # float32 weights and biases: 10.5 MB
LARGE = [
    "data.type", "embeddings@ggeur",
    "ggeur.steps", "[]",
    "ggeur.space", "raw",
    "train.batch_or_epoch", "batch",
    "train.local_update_steps", "1",
    "data.splitter", "iid",
    "data.splitter_args", "[]",
    "federate.client_num", str(CLIENTS),
]  # fmt: skip


def write_rows(folder: Path) -> None:
    """Embeddings of `CLASSES` classes, a few rows of each."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(CLASSES), 2)
    features = rng.normal(size=(len(labels), DIM)).astype("float32")
    np.savez(folder / "rows.npz", features=features, labels=labels)


def one_run(engine: str, settings: list[str], rounds: int) -> tuple[list[float], float]:
    """Seconds of each round, and of all the rest."""
    with tempfile.TemporaryDirectory() as folder:
        own = ["outdir", folder, "expname", "run"]
        own += ["federate.total_round_num", str(rounds)]
        command = [*ENGINES[engine], "--cfg", str(QUICKSTART), *settings, *own]
        started = time.perf_counter()
        if engine.startswith("Flower"):
            subprocess.run(command, cwd=folder, env=environ(), check=True)
            command = ["flwr", "run", "app", "local-simulation", "--stream"]
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            env={**environ(), "FLWR_HOME": folder},
            check=False,
        )
        whole = time.perf_counter() - started
        if done.returncode:
            raise SystemExit(f"{engine} failed:\n{done.stdout}{done.stderr}")
        # The server's: clients of FS leave results of their own.
        found = (
            read_results(path.parent) for path in Path(folder).rglob("results.json")
        )
        results = next(one for one in found if not one.engine.endswith("a client"))
    taken = [record.seconds for record in results.rounds]
    return taken, whole - sum(taken)


def environ() -> dict[str, str]:
    python = os.pathsep.join(
        filter(
            None, [os.environ.get("FEDERATEDSCOPE_HOME"), os.environ.get("PYTHONPATH")]
        )
    )
    return {**os.environ, "PYTHONPATH": python, "OMP_NUM_THREADS": "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--csv", type=Path, help="write the table to this file")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder))
        sizes = {"quickstart": list[str](), "10 MB": [*LARGE, "data.root", folder]}
        for size, settings in sizes.items():
            rounds: dict[str, list[float]] = {engine: [] for engine in ENGINES}
            starts: dict[str, list[float]] = {engine: [] for engine in ENGINES}
            for _ in range(args.repeats):
                for engine in ENGINES:
                    taken, start = one_run(engine, settings, args.rounds)
                    rounds[engine].append(median(taken))
                    starts[engine].append(start)
            rows += [
                {
                    "message": size,
                    "engine": engine,
                    "s a round": f"{median(rounds[engine]):.3g}",
                    "times embedded": ratio(rounds[engine], rounds["embedded"]),
                    "start-up s": f"{median(starts[engine]):.3g}",
                }
                for engine in ENGINES
            ]
    report(rows, args.csv)


if __name__ == "__main__":
    main()
