"""A whole federation on this machine: Flower's own processes, on loopback only."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.run_settings import divides_by_domain
from federatedscope_ggeur.engines.flower.app_folder import write_app
from federatedscope_ggeur.engines.flower.resident import SOCKET
from federatedscope_ggeur.engines.run import load_federated_data
from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.printable import get_logger, printable

logger = get_logger(__name__)

#: No telemetry, no look for updates, nothing installed while it runs.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
_HOST, _FEDERATION = "127.0.0.1", "here"
_START, _GRACE = 120.0, 5.0  # s, to start and to end by itself
_CONNECTION = """\
[superlink.{name}]
address = "{address}"
insecure = true
"""


class LocalFederation:
    """The processes of one federation: a SuperLink, and a SuperNode and a resident for
    each client.

    Parameters
    ----------
    cfg : CfgNode
        The settings of a run on one machine.

    Attributes
    ----------
    processes : dict from name to Popen
    folder : Path
        The folder of the processes; removed at the end.
    clients : int

    Raises
    ------
    ConfigError, DataError
        The data cannot be read or divided.
    """

    def __init__(self, cfg):
        for command in ("flower-superlink", "flower-supernode", "flwr"):
            _program(command)
        data = load_federated_data(cfg)
        self.clients = len(data.clients)
        changes = ["federate.mode", "distributed"]
        changes += ["federate.client_num", str(self.clients)]
        if divides_by_domain(cfg):
            changes += ["data.splitter", "iid"]
        if cfg.data.root:
            changes += ["data.root", str(Path(cfg.data.root).expanduser().resolve())]
        self._cfg = cfg
        self._changes = [*changes, "outdir", str(Path(cfg.outdir).resolve())]
        self.processes: dict[str, subprocess.Popen] = {}
        # Short: the path of a socket has at most about 100 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="ggeur-"))

    def start(self) -> None:
        """Start all processes but the run itself.

        Raises
        ------
        GGEURError
            A process ended at once.
        """
        self._address = f"{_HOST}:{_free_port()}"
        server = ["distribute.role", "server"]
        cfg = load_config(self._cfg, [*self._changes, *server], on_fs=True)
        write_app(self.folder / "app", cfg)
        home = self.folder / "flwr"
        home.mkdir()
        text = _CONNECTION.format(name=_FEDERATION, address=self._address)
        (home / "config.toml").write_text(text, encoding="utf-8")
        for k in range(1, self.clients + 1):
            self.start_resident(k)
        self.start_superlink()
        for k in range(1, self.clients + 1):
            self.start_supernode(k)

    def start_superlink(self) -> None:
        """Start the SuperLink, and wait until it listens.

        Raises
        ------
        GGEURError
            The SuperLink ended at once.
        """
        host, _, port = self._address.partition(":")
        command = [_program("flower-superlink"), "--insecure"]
        process = self._start("superlink", [*command, "--host", host, "--port", port])
        until = time.monotonic() + _START
        while time.monotonic() < until and process.poll() is None:
            with suppress(OSError), socket.create_connection((host, int(port)), 1.0):
                return
            time.sleep(0.1)
        raise GGEURError(f"Flower's SuperLink did not start: {self.words('superlink')}")

    def start_resident(self, number: int) -> None:
        """Start the resident of a client."""
        own = ["distribute.role", "client", "distribute.data_idx", str(number)]
        cfg = load_config(self._cfg, [*self._changes, *own], on_fs=True)
        site = self.site(number)
        site.mkdir(mode=0o700, exist_ok=True)
        (site / "site.yaml").write_text(cfg.dump(), encoding="utf-8")
        command = [sys.executable, "-m", "federatedscope_ggeur", "site"]
        command += ["--cfg", str(site / "site.yaml"), "--folder", str(site)]
        self._start(f"resident {number}", command)

    def start_supernode(self, number: int) -> None:
        """Start the SuperNode of a client."""
        path = self.site(number) / SOCKET
        command = [_program("flower-supernode"), "--insecure"]
        command += ["--superlink", self._address, "--host", _HOST]
        command += ["--port", str(_free_port())]
        command += ["--node-config", f'resident="{path}"']
        self._start(f"supernode {number}", command)

    def site(self, number: int) -> Path:
        """A client's own folder."""
        return self.folder / f"site{number}"

    def run(self, settings: Sequence[str] = ()) -> Path:
        """Run to the end; returns the run's folder.

        Raises
        ------
        GGEURError
            The run failed, or a process that it needs ended.
        """
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        said = " ".join(settings)
        command = [_program("flwr"), "run", str(self.folder / "app"), _FEDERATION]
        command += ["--stream", "-c", f"report='{report}' settings='{said}'"]
        run = self._start("run", command)
        while run.poll() is None and not report.exists():
            superlink = self.processes["superlink"]
            if superlink.poll() is not None:
                raise GGEURError(f"Flower's SuperLink ended: {self.words('superlink')}")
            time.sleep(0.2)
        until = time.monotonic() + _GRACE
        while not report.exists() and time.monotonic() < until:
            time.sleep(0.1)
        if not report.exists():
            raise GGEURError(f"the run failed in Flower: {self.words('run')}")
        told = json.loads(report.read_text(encoding="utf-8"))
        if "error" in told:
            raise GGEURError(told["error"])
        return Path(told["folder"])

    def words(self, name: str) -> str:
        """The last lines that a process wrote."""
        text = (self.folder / f"{name}.log").read_text(errors="replace")
        return printable(" ".join(text.split())[-1000:], 1000) or "it said nothing"

    def _start(self, name: str, command: list[str]) -> subprocess.Popen:
        # Flower's processes find each other, and their Python, by the path.
        programs = str(Path(sys.executable).parent)
        path = {"PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
        home = {"FLWR_HOME": str(self.folder / "flwr")}
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                env={**os.environ, **QUIET, **home, **path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a group, to end it with all its children
            )
        return self.processes[name]

    def kill(self, name: str) -> None:
        """Kill a process and its children."""
        _signal(self.processes[name], signal.SIGKILL)
        self.processes[name].wait()

    def close(self) -> None:
        """End all processes, and remove their folder."""
        for process in self.processes.values():
            _signal(process, signal.SIGTERM)
        until = time.monotonic() + _GRACE
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        for process in self.processes.values():
            _signal(process, signal.SIGKILL)
            process.wait()
        for number in self._detached():
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _detached(self) -> list[int]:
        """The processes that Flower started in groups of their own; only on Linux
        (/proc).
        """
        home, found = f"FLWR_HOME={self.folder}/".encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if home in path.read_bytes():
                    found.append(int(path.parent.name))
        return found


@contextmanager
def local_federation(cfg) -> Iterator[LocalFederation]:
    """A federation that has started; all its processes end with the block."""
    one = LocalFederation(cfg)
    try:
        one.start()
        yield one
    finally:
        one.close()


def run_locally(cfg) -> Path:
    """Run `cfg` through Flower on this machine; returns the run's folder.

    Raises
    ------
    GGEURError
        Flower is missing, or the run failed.
    """
    with local_federation(cfg) as one:
        logger.info("Flower: a SuperLink and %d sites on this machine", one.clients)
        return one.run()


def _program(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    if not beside.exists():
        raise ConfigError(
            f"--engine flower needs Python 3.11 or later and Flower's '{name}', which "
            "is not installed: pip install 'federatedscope-ggeur[flower]'"
        )
    return str(beside)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind((_HOST, 0))
        return one.getsockname()[1]


def _signal(process: subprocess.Popen, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
