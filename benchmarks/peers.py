"""CPU time of a client-round in this package and in others that simulate federations.

Each does the same work: FedAvg of a linear head on the same arrays, from the same
weights, one epoch of SGD in batches of 10 on the same clients in each round. The order
of rows within an epoch is its own. `peer/` has a script for each. Every script runs in
a process of its own, in an environment of its own. All share one core; one works while
the others wait.

Times are CPU times of all processes of a peer, for some rounds in its turn, so neither
start-up nor evaluation is in them. Linux only.

    python benchmarks/peers.py --environments FOLDER --install
    FEDERATEDSCOPE_HOME=<FS> python benchmarks/peers.py --environments FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import torch
from measure import ratio, report
from peer.work import SAID
from workloads import DIM, embeddings

from federatedscope_ggeur.federation.sampling import draw_clients
from federatedscope_ggeur.methods import initial_weights
from federatedscope_ggeur.models import ModelSettings, build_model
from federatedscope_ggeur.rng import numpy_generator

HERE = Path(__file__).parent
OURS, LOOP = "this package", "torch loop"
SEED, CLASSES, BATCH, RATE, TEST_ROWS = 0, 10, 10, 0.003, 5000
#: Of the Dirichlet distribution that a client's classes are drawn from.
ALPHA = 0.5
#: Accuracies (in points) further than this from the torch loop's are not of one work.
NOISE = 1.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Peer:
    """A script of `peer/`, and what its environment is made of; with nothing named
    it runs in this Python.
    """

    name: str
    script: str
    packages: tuple[str, ...] = ()
    checkout: str = ""  # the variable that names a folder to import from

    def python(self, environments: Path | None) -> Path | None:
        """The Python that runs it; None if it is not there."""
        if not self.packages:
            return Path(sys.executable)
        if environments is None:
            return None
        python = environments / Path(self.script).stem / "bin" / "python"
        return python.absolute() if python.exists() else None

    def absence(self, environments: Path | None) -> str:
        """Why it cannot run; "" if it can."""
        if self.checkout and not os.environ.get(self.checkout):
            return f"{self.checkout} names no checkout"
        if self.python(environments) is None:
            return f"no environment {Path(self.script).stem}: see --install"
        return ""

    def environment(self) -> dict[str, str]:
        """One thread each, and nothing sent anywhere."""
        one = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        found = {
            **os.environ,
            **dict.fromkeys(one, "1"),
            "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
            "FLWR_TELEMETRY_ENABLED": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        if self.checkout:
            found["PYTHONPATH"] = os.environ[self.checkout]
            # Its messages, which standalone mode does not use, are of an old protobuf.
            found["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"
        return found

    def install(self, environments: Path) -> None:
        folder = environments / Path(self.script).stem
        if self.packages and not folder.exists():
            venv.create(folder, with_pip=True)
            python = str(folder / "bin" / "python")
            subprocess.run([python, "-m", "pip", "install", *self.packages], check=True)


#: The last fedjax, of 2023, beside packages that it still works with.
FEDJAX = (
    "fedjax==0.0.17",
    "jax==0.4.30",
    "jaxlib==0.4.30",
    "dm-haiku==0.0.12",
    "optax==0.2.2",
)
PEERS = (
    Peer(OURS, "ours.py"),
    Peer(LOOP, "torch_loop.py"),
    Peer("fedjax", "fedjax_simulation.py", FEDJAX),
    Peer("pfl-research", "pfl_simulation.py", ("pfl[pytorch]==0.6.0",)),
    Peer("Flower", "flower_simulation.py", ("flwr[simulation]==1.42.0", "torch")),
    Peer("FederatedScope", "fs_simulation.py", checkout="FEDERATEDSCOPE_HOME"),
)


@dataclass(frozen=True)
class Setting:
    clients: int
    rows: int
    drawn: int

    def __str__(self) -> str:
        return f"{self.clients} x {self.rows}, {self.drawn} drawn"


SETTINGS = (Setting(1000, 50, 50), Setting(60, 250, 60))


@dataclass
class Measured:
    """Of one peer."""

    start: float  # seconds
    turns: list[float] = field(default_factory=list)  # milliseconds a client-round
    accuracy: float = 0.0  # percent
    versions: Mapping[str, str] = field(default_factory=dict)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--environments", type=Path, help="a folder of environments")
    parser.add_argument("--install", action="store_true", help="make those, and end")
    parser.add_argument("--peers", nargs="+", choices=[peer.name for peer in PEERS])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=6, help="of a turn")
    parser.add_argument("--quick", action="store_true", help="2 turns of 2 rounds")
    parser.add_argument("--csv", help="write the table to this file")
    parser.add_argument("--figure", type=Path, help="draw the table into this file")
    options = parser.parse_args()
    if options.install:
        if options.environments is None:
            parser.error("--install needs --environments FOLDER")
        for peer in PEERS:
            peer.install(options.environments)
        return
    turns, rounds = (2, 2) if options.quick else (options.turns, options.rounds)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core for all
    torch.set_num_threads(1)
    there = []
    for peer in PEERS:
        absence = peer.absence(options.environments)
        if options.peers is not None and peer.name not in options.peers:
            absence = "not among --peers"
        if absence:
            print(f"{peer.name}: not measured, {absence}")
        else:
            there.append(peer)
    rows = []
    for setting in SETTINGS:
        found = compare(setting, there, options.environments, turns, rounds)
        rows += table(setting, found)
    report(rows, options.csv)
    if options.figure:
        draw(rows, options.figure)


def compare(
    setting: Setting,
    peers: Sequence[Peer],
    environments: Path | None,
    turns: int,
    rounds: int,
) -> dict[str, Measured]:
    """Start all peers, then let one after the other go on by so many rounds."""
    found = {}
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        folder = Path(name)
        features, labels = write_work(folder / "work", setting, turns, rounds)
        started = {}
        for peer in peers:
            at = running.enter_context(Running(peer, environments, folder))
            started[peer.name], found[peer.name] = at, Measured(at.go_on())
        for _ in range(turns):
            for peer, at in started.items():
                cost = 1000 * at.go_on() / (rounds * setting.drawn)
                found[peer].turns.append(cost)
                print(f"{setting}, {peer}: {cost:.2f} ms", file=sys.stderr)
        for peer, at in started.items():
            weight, bias, found[peer].versions = at.end()
            said = (features @ weight.T + bias).argmax(1)
            found[peer].accuracy = 100 * float((said == labels).mean())
    return found


class Running:
    """A peer at work, which stops where `Work.after_round` has it stop."""

    def __init__(self, peer: Peer, environments: Path | None, folder: Path):
        self._name, self._left = peer.name, folder / Path(peer.script).stem
        self._left.mkdir()
        self._log = open(self._left / "log.txt", "w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [
                str(peer.python(environments)),
                str(HERE / "peer" / peer.script),
                str(folder / "work"),
                str(self._left),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=peer.environment(),
            start_new_session=True,
        )
        self._waits = False

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *error) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def go_on(self) -> float:
        """CPU seconds to where it stops next."""
        before = cpu_seconds(self._process.pid)
        self._release()
        for line in self._process.stdout:
            if line.startswith(SAID):
                self._waits = True
                return cpu_seconds(self._process.pid) - before
        raise self._failure()

    def end(self) -> tuple[np.ndarray, np.ndarray, Mapping[str, str]]:
        """Let it end; its head, of shapes (C, D) and (C,), and versions of packages."""
        self._release()
        self._process.stdout.read()
        if self._process.wait() != 0:
            raise self._failure()
        head = np.load(self._left / "head.npz")
        versions = json.loads((self._left / "versions.json").read_text())
        return head["weight"], head["bias"], versions

    def _release(self) -> None:
        if self._waits:
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def _failure(self) -> SystemExit:
        self._log.seek(0)
        return SystemExit(f"{self._name} failed:\n{self._log.read()[-3000:]}")


def write_work(
    folder: Path, setting: Setting, turns: int, rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Write what `peer.work.Work` reads; returns rows to test on and their labels."""
    folder.mkdir()
    write_settings(folder, setting, turns, rounds)
    random = numpy_generator(0, "benchmarks", "peers")
    shares = random.dirichlet(np.full(CLASSES, ALPHA), size=setting.clients)
    counts = random.multinomial(setting.rows, shares)
    test_counts = np.full(CLASSES, TEST_ROWS // CLASSES)
    held = np.concatenate([counts, test_counts[None]])
    totals = torch.from_numpy(held.sum(0))[None]
    ((features, _),) = embeddings(totals, DIM, seed=0)
    # They come class by class; each client takes its number of each.
    taker = [np.repeat(np.arange(len(held)), held[:, c]) for c in range(CLASSES)]
    order = np.argsort(np.concatenate(taker), kind="stable")
    labels = np.repeat(np.arange(CLASSES), held.sum(0))[order]
    rows, clients = features.numpy()[order], setting.clients * setting.rows
    shape = setting.clients, setting.rows
    np.save(folder / "features.npy", rows[:clients].reshape(*shape, DIM))
    np.save(folder / "labels.npy", labels[:clients].reshape(shape))
    return rows[clients:], labels[clients:]


def write_settings(folder: Path, setting: Setting, turns: int, rounds: int) -> None:
    """Write the initial weights and the clients of each round: those of our seed.

    Two rounds come before the first turn. One more at the end keeps what a peer does
    last out of the times.
    """
    stops = [2 + turn * rounds for turn in range(turns + 1)]
    numbers = range(1, setting.clients + 1)
    schedule = [
        draw_clients(numbers, setting.drawn, SEED, "sample", number)
        for number in range(1, stops[-1] + 2)
    ]
    values = {"schedule": schedule, "batch": BATCH, "rate": RATE, "seed": SEED}
    (folder / "work.json").write_text(json.dumps({**values, "stops": stops}))
    params = initial_weights(build_model(DIM, CLASSES, ModelSettings()), SEED).numpy()
    np.save(folder / "weight.npy", params[:-CLASSES].reshape(CLASSES, DIM))
    np.save(folder / "bias.npy", params[-CLASSES:])


def cpu_seconds(process: int) -> float:
    """CPU time of a process and of all below it, also of those that have ended."""
    children: dict[int, list[int]] = {}
    ended = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            # proc(5), from field 3 on: 4 is the parent, 16 and 17 are of children.
            fields = path.read_text().rpartition(")")[2].split()
            number = int(path.parent.name)
            children.setdefault(int(fields[1]), []).append(number)
            ended[number] = sum(map(int, fields[13:15])) / _TICKS
    below, total = [process], 0.0
    while below:
        number = below.pop()
        # clock_getcpuclockid(3): finer than the ticks of /proc.
        with suppress(OSError):
            total += ended[number] + time.clock_gettime(~number << 3 | 2)
        below += children.get(number, [])
    return total


def table(setting: Setting, found: Mapping[str, Measured]) -> list[dict[str, str]]:
    """A row for each peer."""
    middle = {name: median(one.turns) for name, one in found.items()}
    rows = []
    for name, one in found.items():
        others = [other for other in middle if other != name]
        best = min(others, key=middle.__getitem__, default=name)
        beyond = one.accuracy - found.get(LOOP, one).accuracy
        is_same = abs(beyond) <= NOISE
        rows.append(
            {
                "clients x rows": str(setting),
                "peer": name,
                "ms a client-round": f"{middle[name]:.2f}",
                "ratio to the best other": f"{ratio(one.turns, found[best].turns)}",
                "best other": best,
                "start-up s": f"{one.start:.1f}",
                "accuracy": f"{one.accuracy:.2f}{'' if is_same else ' NOT THE SAME'}",
                "versions": ", ".join(f"{p} {v}" for p, v in one.versions.items()),
            }
        )
    return rows


def draw(rows: Sequence[Mapping[str, str]], path: Path) -> None:
    """Bars of milliseconds a client-round, a panel for each setting."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    settings = list(dict.fromkeys(row["clients x rows"] for row in rows))
    figure, panels = pyplot.subplots(
        1, len(settings), figsize=(9, 2.8), layout="constrained", squeeze=False
    )
    for panel, setting in zip(panels[0], settings):
        shown = [row for row in rows if row["clients x rows"] == setting][::-1]
        names = [row["peer"] for row in shown]
        values = [float(row["ms a client-round"]) for row in shown]
        colours = ["#D55E00" if name == OURS else "#0072B2" for name in names]
        bars = panel.barh(names, values, color=colours)
        panel.bar_label(bars, [f"{value:.2f}" for value in values], padding=3)
        panel.set(xscale="log", title=setting, xlabel="CPU ms a client-round")
        panel.margins(x=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    matplotlib.rcParams["svg.hashsalt"] = "peers"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


if __name__ == "__main__":
    main()
