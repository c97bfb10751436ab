"""Starts Flower's own programs, as processes that end with this one."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.tracking import experiment_name
from federatedscope_ggeur.engines.flower.own_clientapp import write_programs
from federatedscope_ggeur.engines.watch import is_fresh, read_status
from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.printable import get_logger, printable
from federatedscope_ggeur.reporting import new_run_folder
from federatedscope_ggeur.reporting.run_files import LOG_FILE
from federatedscope_ggeur.transport import Security
from federatedscope_ggeur.transport.asking import reach_problem

logger = get_logger(__name__)

LOOPBACK = "127.0.0.1"
#: No telemetry, no update check, and no installation of packages.
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
#: How a message begins in the server's log; its further lines do not.
_LOGGED = re.compile(r"\S+ \S+ (DEBUG|INFO|WARNING|ERROR|CRITICAL) ")
_HERE = "here"  # the SuperLink's name in Flower's config.toml
#: Seconds for a program to start, and to end by itself; and for the server to write its
#: files and tell the sites.
_START, _GRACE, _STOP = 300.0, 20.0, 60.0


class Programs:
    """Processes, each in a group of its own, and a folder for their logs.

    At the end of the context all processes end, and the folder is removed.

    Attributes
    ----------
    running : dict from name to Popen
    folder : Path
    environ : dict
        Variables that every process gets, beside those of this process.
    """

    def __init__(self):
        self.running: dict[str, subprocess.Popen] = {}
        # Short: the path of a socket has at most about 100 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="ggeur-"))
        beside = str(Path(sys.executable).parent)  # where Flower's programs are
        path = os.pathsep.join([beside, os.environ.get("PATH", os.defpath)])
        self.environ = {**_QUIET, "FLWR_HOME": str(self.folder / "flwr"), "PATH": path}

    def __enter__(self) -> Programs:
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def start(
        self, name: str, command: Sequence[str], **environ: str
    ) -> subprocess.Popen:
        """Start a process that `running` has by this name, with more variables."""
        with open(self.folder / f"{name}.log", "ab") as log:
            self.running[name] = subprocess.Popen(
                command,
                env={**os.environ, **self.environ, **environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a group, to end it with all its children
            )
        return self.running[name]

    def words(self, name: str) -> str:
        """The last lines that a process wrote."""
        text = (self.folder / f"{name}.log").read_text(errors="replace")
        return printable(" ".join(text.split())[-1000:], 1000) or "it said nothing"

    def close(self) -> None:
        """End all processes, and remove the folder."""
        there = self._running()
        for process in there:
            _signal(process, signal.SIGTERM)
        wait_for(lambda: not self._running() and not self._detached(), _GRACE)
        for process in there:
            _signal(process, signal.SIGKILL)
            process.wait()
        for number in self._detached():
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _running(self) -> list[subprocess.Popen]:
        return [one for one in self.running.values() if one.poll() is None]

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


class SuperLink:
    """Starts a SuperLink, and federations on it.

    Parameters
    ----------
    programs : Programs
    host : str
        The address that it listens at.
    port : int
    security : Security
        With a certificate the SuperLink uses TLS. The certificate must be for
        127.0.0.1, too.
    keys : sequence of path
        The public keys of the sites' SuperNodes. Without any, every SuperNode may
        connect.
    """

    def __init__(
        self,
        programs: Programs,
        host: str,
        port: int,
        security: Security,
        keys: Sequence[Path] = (),
    ):
        self._programs, self._keys = programs, keys
        self._options = ["--host", host, "--port", str(port)]
        self._address, trust = f"{LOOPBACK}:{port}", "insecure = true"
        if security.certificate:
            files = ["--ssl-certfile", security.certificate]
            files += ["--ssl-keyfile", security.key]
            self._options += [*files, "--ssl-ca-certfile", security.authority]
            authority = json.dumps(str(Path(security.authority).resolve()))
            trust = f"root-certificates = {authority}"
        else:
            self._options.append("--insecure")
        if keys:
            self._options.append("--enable-supernode-auth")
        home = programs.folder / "flwr"
        home.mkdir()
        (home / "config.toml").write_text(
            f'[superlink.{_HERE}]\naddress = "{self._address}"\n{trust}\n', "utf-8"
        )

    def start(self) -> None:
        """Start it, wait until it listens, and tell it the sites' keys.

        Raises
        ------
        GGEURError
            It ended at once, or refused a key.
        """
        command = [program("flower-superlink"), *self._options]
        process = self._programs.start("superlink", command)
        wait_for(lambda: self._listens() or process.poll() is not None, _START)
        if process.poll() is not None or not self._listens():
            said = self._programs.words("superlink")
            raise GGEURError(f"Flower's SuperLink did not start: {said}")
        told = {}
        for key in self._keys:
            words = ["supernode", "register", str(key), _HERE, "--name", key.stem]
            name = f"register {key.stem}"
            told[key] = self._programs.start(name, [program("flwr"), *words])
        for key, process in told.items():
            with suppress(subprocess.TimeoutExpired):
                process.wait(_START)
            if process.poll() != 0:
                said = self._programs.words(f"register {key.stem}")
                raise GGEURError(f"Flower did not take the key '{key}': {said}")

    def _listens(self) -> bool:
        return not reach_problem(self._address)

    def run(self, app: Path, cfg, settings: Sequence[str] = ()) -> Path:
        """Run an app folder to its end, and show what its server says.

        Parameters
        ----------
        app : path
        cfg : CfgNode
            The settings of the app folder.
        settings : sequence of str
            ``[key, value, ...]``, which override those.

        Returns
        -------
        path
            The run's folder.

        Raises
        ------
        GGEURError
            The run failed, or the SuperLink ended.
        KeyboardInterrupt
            Somebody ended it; the server has written its files by then.
        """
        folder = new_run_folder(cfg.outdir, experiment_name(cfg)).resolve()
        given = {"folder": str(folder), "settings": " ".join(settings)}
        said = " ".join(f"{name}={json.dumps(text)}" for name, text in given.items())
        command = [program("flwr"), "run", str(app), _HERE, "--stream", "-c", said]
        self._programs.start("run", command)
        self._follow(folder)
        status = read_status(folder)
        if status.get("state") != "finished":
            words = self._programs.words("run")
            raise GGEURError(
                status.get("error") or f"the run failed in Flower: {words}"
            )
        return folder

    def _follow(self, folder: Path) -> None:
        """Show the log of the server that writes into `folder`, until it ends."""
        running, shown, until = self._programs.running, 0, float("inf")
        try:
            while read_status(folder).get("state", "running") == "running":
                if running["superlink"].poll() is not None:
                    said = self._programs.words("superlink")
                    raise GGEURError(f"Flower's SuperLink ended: {said}")
                # `flwr run` may end before the server does.
                if running["run"].poll() is not None and not is_fresh(folder):
                    until = min(until, time.monotonic() + _GRACE)
                if time.monotonic() > until:
                    return
                shown = _show_log(folder, shown)
                time.sleep(0.2)
        except KeyboardInterrupt:
            _stop_server(folder)
            raise
        finally:
            _show_log(folder, shown)


def start_supernode(
    programs: Programs,
    name: str,
    superlink: str,
    resident: Path,
    authority: str = "",
    key: str = "",
) -> subprocess.Popen:
    """Start a SuperNode, which runs no code that the server sends.

    Parameters
    ----------
    programs : Programs
    name : str
    superlink : str
        The SuperLink's address, with its port.
    resident : path
        The socket of the site's resident.
    authority : str
        The file with the authority of the SuperLink's certificate. "": without TLS.
    key : str
        The file with the SuperNode's private key, which needs TLS. "": without a key.
    """
    command = [program("flower-supernode"), "--superlink", superlink]
    command += ["--host", LOOPBACK, "--port", str(free_port())]
    command += ["--root-certificates", authority] if authority else ["--insecure"]
    command += ["--auth-supernode-private-key", key] if key else []
    command += ["--node-config", f'resident="{resident}"']
    path = programs.folder / "bin"
    if not path.exists():
        write_programs(path, program("flower-superexec"))
    return programs.start(name, command, PATH=str(path))


def program(name: str) -> str:
    """The path of one of Flower's programs.

    Raises
    ------
    ConfigError
        It is not installed.
    """
    beside = Path(sys.executable).with_name(name)
    if not beside.exists():
        python = ".".join(map(str, sys.version_info[:2]))
        raise ConfigError(
            f"Flower's program '{name}' is not installed. It needs Python 3.11 or "
            f"later (this is {python}): pip install 'federatedscope-ggeur[flower]'"
        )
    return str(beside)


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until the condition holds, for at most so many seconds."""
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.1)


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        return one.getsockname()[1]


def _show_log(folder: Path, shown: int) -> int:
    """Show the lines of the server's log from byte `shown`; returns where they end."""
    log, level = folder / LOG_FILE, logging.INFO
    if log.exists():
        data = log.read_bytes()
        lines = data[shown : data.rfind(b"\n") + 1]
        for line in lines.decode(errors="replace").splitlines():
            if begun := _LOGGED.match(line):
                level = logging.getLevelName(begun[1])
            logger.log(level, "%s", line)
        shown += len(lines)
    return shown


def _stop_server(folder: Path) -> None:
    """Let the ServerApp write the files of the rounds that are over."""
    process = read_status(folder).get("pid")
    if process is None:
        return
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGTERM)
    wait_for(lambda: read_status(folder).get("state") != "running", _STOP)
    logger.warning("interrupted; the files so far are in %s", folder)


def _signal(process: subprocess.Popen, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
