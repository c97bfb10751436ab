"""Workers of a distributed run as real processes.

Importing FederatedScope and torch takes seconds. So one process, the fork server,
imports everything once and forks every worker; fork_server.py is its program.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import load_file

ROOT = Path(__file__).parents[3]
#: Seconds after which a test that waits has failed.
PATIENCE = 600.0
#: Seconds for all imports, beside others, in an environment without compiled files.
STARTING = 300.0
#: What it said, in a worker's folder.
OUTPUT = "output"


#: FederatedScope's config in a worker's output.
DUMP = re.compile(r"the used configs are.*?\x1b\[0m", re.DOTALL)


class Stuck(AssertionError):
    """A process did not do in time what a test waits for."""


class ForkServer:
    """Forks workers.

    Parameters
    ----------
    home : path of the FederatedScope checkout
    """

    def __init__(self, home: str | Path):
        paths = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        self._parent = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fork_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                "FEDERATEDSCOPE_HOME": str(home),
                "OMP_NUM_THREADS": "1",
            },
        )
        self._patience = STARTING

    def ask(self, **request):
        self._parent.stdin.write(json.dumps(request) + "\n")
        self._parent.stdin.flush()
        ready, _, _ = select.select([self._parent.stdout], [], [], self._patience)
        self._patience = PATIENCE
        line = self._parent.stdout.readline() if ready else ""
        if not line:
            raise Stuck("the fork server does not answer; its output says why")
        return json.loads(line)

    def close(self) -> None:
        """End the fork server; it kills what it has forked."""
        self._parent.stdin.close()
        self._parent.wait(PATIENCE)
        self._parent.stdout.close()


class Worker:
    """One process, in a folder of its own.

    Parameters
    ----------
    forks : ForkServer
    folder : Path
    words : sequence of str
        Arguments of the command.
    place : str
        The folder that it works in, if that is another one.
    """

    def __init__(
        self, forks: ForkServer, folder: Path, words: Sequence[str], place: str = ""
    ):
        folder.mkdir()
        self.folder, self._forks, self._status = folder, forks, None
        self.pid = forks.ask(folder=str(folder), words=words, place=place)

    @property
    def output(self) -> str:
        path = self.folder / OUTPUT
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def run_folder(self) -> Path:
        return self.folder / "exp" / "ggeur_quickstart"

    @property
    def results(self) -> dict:
        return json.loads((self.run_folder / "results.json").read_text())

    def status(self) -> int | None:
        """The exit status; None while it runs, -9 if it was killed."""
        if self._status is None:
            self._status = self._forks.ask(pid=self.pid)
        return self._status

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait for the end; the exit status."""
        self._until(lambda: self.status() is not None, "end", seconds)
        return self._status

    def wait_for(self, text: str) -> None:
        """Wait until it has said `text`."""

        def seen() -> bool:
            if text in self.output:
                return True
            if self.status() is not None and text not in self.output:
                raise Stuck(f"ended with {self._status} before {text!r}{self}")
            return False

        self._until(seen, f"say {text!r}", PATIENCE)

    def kill(self) -> None:
        if self.status() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def __str__(self) -> str:
        said = DUMP.sub("", self.output)[-3000:]
        return f"\n--- {self.folder.name}, status {self._status}:\n{said}"

    def _until(self, done, what: str, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not done():
            if time.monotonic() > until:
                raise Stuck(f"did not {what} within {seconds:g} s{self}")
            time.sleep(0.02)


class Fleet:
    """The workers of one run, on a free port.

    Parameters
    ----------
    forks : ForkServer
    folder : Path
        Every worker gets a folder in it.
    config : path of the YAML file
    settings : sequence of str
        Of all workers.
    client_config : path of FS's file of single clients' settings, optional
    """

    def __init__(
        self,
        forks,
        folder: Path,
        config: Path,
        settings: Sequence[str],
        client_config: Path | None = None,
    ):
        self.port = free_port()
        self.workers: list[Worker] = []
        self._forks, self._folder = forks, folder
        self._words = [
            "--engine", "federatedscope",
            "--cfg", str(config),
            *(["--client_cfg", str(client_config)] if client_config else []),
            *settings,
            "federate.mode", "distributed",
            "distribute.use", "True",
            "distribute.server_host", "127.0.0.1",
            "distribute.server_port", str(self.port),
        ]  # fmt: skip

    def server(self, *settings, name="server") -> Worker:
        return self._start(name, ["distribute.role", "server", *settings])

    def client(self, number: int, *settings, name="") -> Worker:
        role = ["distribute.role", "client", "distribute.data_idx", number]
        return self._start(name or f"client_{number}", [*role, *settings])

    def end(self) -> list[str]:
        """Kill what still runs; the names of these."""
        left = [w for w in self.workers if w.status() is None]
        for worker in left:
            worker.kill()
        return [worker.folder.name for worker in left]

    def __str__(self) -> str:
        return "".join(map(str, self.workers))

    def _start(self, name: str, settings: Sequence) -> Worker:
        words = [*self._words, *map(str, settings)]
        self.workers.append(Worker(self._forks, self._folder / name, words))
        return self.workers[-1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def check_same_head(server: Worker, clients: Sequence[Worker], expected) -> None:
    """Everyone ended well, with the head and scores of the `expected` run."""
    assert [worker.wait() for worker in (server, *clients)] == [0] * (len(clients) + 1)
    results, model = expected
    files = [server.run_folder / "head.safetensors"]
    files += [client.run_folder / "head.safetensors" for client in clients]
    for held in map(load_file, files):
        assert held.keys() == model.keys()
        assert all(held[name].equal(model[name]) for name in model)
    ours, wanted = server.results["rounds"], results["rounds"]
    for key in ("round", "clients", "accuracy", "loss"):
        assert [r[key] for r in ours] == [r[key] for r in wanted]
