"""A distributed run that is disturbed all the time: does it end, with the same bits?

Processes of clients are killed or stopped for a while, the server is killed, one client
has a slow link, and a stranger lies, floods and says nothing. Whoever ends badly is
started again, the server from its checkpoint. Compared with the undisturbed run on the
embedded engine: every bit of the final head. FederatedScope must be found by
FEDERATEDSCOPE_HOME. Long form: ``--clients 50 --seconds 600``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors.torch import load, load_file

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "engines" / "fs")]

from processes import Fleet, ForkServer, Worker  # noqa: E402

from federatedscope_ggeur.cfg_ggeur.load import load_config  # noqa: E402
from federatedscope_ggeur.engines.run import Run  # noqa: E402
from federatedscope_ggeur.engines.sites.transport import (  # noqa: E402
    Envelope,
    TransportSettings,
    open_link,
)
from federatedscope_ggeur.errors import GGEURError  # noqa: E402
from federatedscope_ggeur.federation.wire.handshake import (  # noqa: E402
    Declared,
    Handshake,
    Join,
)

CONFIG = ROOT / "scripts" / "example_configs" / "ggeur_quickstart.yaml"
CLASSES, DIM = 4, 16
#: Seconds without a new round after which a run hangs.
STALL = 180.0
#: Seconds between two disturbances, on average, and that a stopped process is stopped.
BETWEEN, STOPPED = 3.0, 2.0
#: Bytes a second, and seconds that each piece takes, of the slow link: no more than two
#: rounds fit into a second, so that a run lasts as long as it is disturbed.
SLOW, DELAY = 200_000, 0.1


@dataclass
class Outcome:
    """What became of a soak.

    Attributes
    ----------
    same : bool
        Whether the final head is the undisturbed run's to the bit.
    hangs : int
    rounds : int
    seconds : float
    counts : dict
        Disturbances by kind, and processes started again.
    """

    same: bool = False
    hangs: int = 0
    rounds: int = 0
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)

    def note(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


class SlowLink:
    """A port that passes bytes on to another, slowly and late."""

    def __init__(self, to: int):
        self._to, self._listening = to, socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            here, _ = self._listening.accept()
            try:
                there = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                here.close()
                continue
            for pair in ((here, there), (there, here)):
                threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(16_384):
                time.sleep(DELAY + len(piece) / SLOW)
                sink.sendall(piece)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Liar:
    """A stranger: takes numbers that nobody has, floods, says nothing, goes."""

    def __init__(self, port: int, clients: int, seed: int):
        self._port, self._clients = port, clients
        self._random, self.tries = random.Random(f"liar {seed}"), 0
        threading.Thread(target=self._lie, daemon=True).start()

    def _lie(self) -> None:
        while True:
            self.tries += 1
            handshake = Handshake(("a",), 2**40, "lies", {})
            number = self._clients + self._random.randint(1, 5)
            told = Join(handshake, Declared(), number, "x")
            join = Envelope("join_in", 0, (told.to_bytes(),))
            settings = TransportSettings(2**24, join_deadline=5.0)
            self._flood(number, join, settings)
            with suppress(OSError), self._silent() as silent:
                silent.sendall(b"\x00" * self._random.randint(0, 100))
            time.sleep(self._random.random())

    def _flood(self, number: int, join: Envelope, settings: TransportSettings) -> None:
        address = f"127.0.0.1:{self._port}"
        with (
            suppress(GGEURError),
            closing(open_link(address, number, join, settings)) as link,
        ):
            for state in range(self._random.randint(0, 1000)):
                link.send(Envelope("metrics", state, (b"junk",)))
            link.receive(self._random.random())

    def _silent(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), 1.0)


class Soak:
    """One run with all that happens to it.

    Parameters
    ----------
    folder : Path
    clients, rounds : int
    seconds : float
        For so long it is disturbed, from round 0 on; then it may end in peace.
    seed : int
        Of the disturbances.
    """

    def __init__(self, folder: Path, clients: int, rounds: int, seconds: float, seed=0):
        self._folder, self._clients, self._seconds = folder, clients, seconds
        self._random, self._seed = random.Random(seed), seed
        self._checkpoint = folder / "kept" / "checkpoint"
        self._next: list[str] = []
        self.outcome, self._number = Outcome(rounds=rounds), 0
        _write_embeddings(folder / "embeddings", clients)
        self._words = [
            "data.type", "embeddings@ggeur",
            "data.root", str(folder / "embeddings"),
            "data.splitter", "iid",
            "data.splitter_args", "[]",
            "federate.client_num", str(clients),
            "federate.total_round_num", str(rounds),
            "eval.freq", "10",
            "ggeur.step1_size", "20",
            "ggeur.step2_size", "10",
            "ggeur.privacy.min_samples", "1",
        ]  # fmt: skip

    def undisturbed(self) -> dict:
        """The head of the same run where nothing happens."""
        one = Run(load_config(CONFIG, self._words))
        one.follow(lambda record: None)
        return load(one.history.head_bytes())

    def run(self, home: str | Path) -> Outcome:
        """Disturb the run until it ends or hangs."""
        wanted, began = self.undisturbed(), time.monotonic()
        forks = ForkServer(home)
        settings = [
            *self._words,
            "federate.save_to", str(self._checkpoint),
            "ggeur.deadline.join", "120",
        ]  # fmt: skip
        self._fleet = Fleet(forks, self._folder, CONFIG, settings)
        slow = SlowLink(self._fleet.port)
        self._ports = {1: slow.port}
        try:
            server = self._start(0)
            self._workers = {k: self._start(k) for k in range(1, self._clients + 1)}
            liar = Liar(self._fleet.port, self._clients, self._seed)
            final = self._until_the_end(server)
            self.outcome.counts["lies"] = liar.tries
        finally:
            self._fleet.end()
            forks.close()
        self.outcome.seconds = time.monotonic() - began
        if final is not None:
            rounds = final.results["rounds"]
            lacking = sum(len(one["clients"]) < self._clients for one in rounds)
            self.outcome.counts["rounds that lack a client"] = lacking
            head = load_file(final.run_folder / "head.safetensors")
            self.outcome.same = head.keys() == wanted.keys() and all(
                head[name].equal(wanted[name]) for name in head
            )
        return self.outcome

    def _start(self, number: int) -> Worker:
        """The server (0) or a client, as often as it takes."""
        self._number += 1
        name = f"{number}_{self._number}"
        if number:
            port = self._ports.get(number, self._fleet.port)
            own = ("distribute.server_port", port)
            return self._fleet.client(number, *own, name=name)
        goes_on = self._checkpoint.exists()
        restore = ("federate.restore_from", self._checkpoint) if goes_on else ()
        return self._fleet.server(*restore, name=name)

    def _until_the_end(self, server: Worker) -> Worker | None:
        """The server that ended well; None after a hang."""
        due, seen, since, last = float("inf"), 0.0, time.monotonic(), 0.0
        while server.status() != 0:
            now = time.monotonic()
            if server.status() is not None:
                self.outcome.note("servers started again")
                server = self._start(0)
            for k, worker in self._workers.items():
                if worker.status() not in (None, 0):
                    self.outcome.note("clients started again")
                    self._workers[k] = self._start(k)
            if due < now < last:
                self._disturb(server)
                due = now + self._random.expovariate(1 / BETWEEN)
            at = self._checkpoint.stat().st_mtime if self._checkpoint.exists() else 0.0
            if at != seen:
                if not seen:
                    due, last = now, now + self._seconds
                seen, since = at, now
            if now - since > STALL:
                self.outcome.hangs += 1
                print(f"no round for {STALL:g} s", server, file=sys.stderr)
                return None
            time.sleep(0.05)
        return server

    def _disturb(self, server: Worker) -> None:
        if not self._next:
            self._next = ["kill", "stop", "stop", "stop", "server"]
            self._random.shuffle(self._next)
        what = self._next.pop()
        k = self._random.randint(1, self._clients)
        pid = server.pid if what == "server" else self._workers[k].pid
        self.outcome.note({"kill": "kills", "stop": "stops"}.get(what, "server kills"))
        with suppress(ProcessLookupError):
            if what != "stop":
                os.kill(pid, signal.SIGKILL)
                return
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self._random.random() * STOPPED)
            os.kill(pid, signal.SIGCONT)


def _write_embeddings(folder: Path, clients: int) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, DIM)) * 2
    labels = np.arange(clients * 24) % CLASSES
    for name in ("art", "photo"):
        features = centres[labels] + rng.normal(size=(len(labels), DIM))
        np.savez(
            folder / f"{name}.npz", features=features.astype("float32"), labels=labels
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=0, help="default: 2 a second")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    home = os.environ.get("FEDERATEDSCOPE_HOME")
    if not home:
        parser.error("FEDERATEDSCOPE_HOME must name a checkout of FederatedScope")
    rounds = options.rounds or int(2 * options.seconds)
    with tempfile.TemporaryDirectory() as folder:
        asked = options.clients, rounds, options.seconds, options.seed
        found = Soak(Path(folder), *asked).run(home)
    print(json.dumps(found.__dict__, indent=1))
    return 0 if found.same and not found.hangs else 1


if __name__ == "__main__":
    sys.exit(main())
