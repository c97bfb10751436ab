"""Record where and how a run was made, so that another person can reproduce it."""

import contextlib
import os
import platform
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Optional

from federatedscope_ggeur.machine import peak_memory, usable_cores

from .json_values import Seconds

_PEAK_RESET = "5"  # written to /proc/self/clear_refs, it resets the peak (Linux)
_GIT_SECONDS = 10


@dataclass(frozen=True)
class DataFingerprint:
    """A hash of the rows that a run used, whoever held them and in whatever order.

    Attributes
    ----------
    rows : int
        The number of training, validation and test rows.
    sha256 : str
        The hash of their features, labels and splits.
    pool : str or None
        The hash of all rows of the data set before they were split, with their labels:
        the same for all seeds. None if it is not known, as in results of an older
        release, if the rows came divided, or if ``data.splits`` leaves rows out.
    """

    rows: int
    sha256: str
    pool: Optional[str] = None


@dataclass(frozen=True)
class Provenance:
    """The place, the time and the software of a run.

    Attributes
    ----------
    started : str
        The start of the run in ISO 8601, UTC.
    wall_seconds, cpu_seconds : float
        The times of this process and its workers, including the reading of data. After
        a restore they count from the restore.
    peak_memory : int or None
        The largest number of bytes that the process held. None if unknown.
    platform, processor : str
    cores : int
        The number of cores that the process may use.
    gpu : str or None
        The GPU that the run trained on. None for the CPU.
    command : list of str
        The command line.
    git_commit : str or None
        The commit of the folder in which the run was started. None if that is no git
        repository.
    git_changed : bool or None
        Whether tracked files differ from that commit.
    data : DataFingerprint or None
        The rows of the run. None if no process has all rows (FederatedScope).
    """

    started: str
    wall_seconds: Seconds
    cpu_seconds: Seconds
    peak_memory: Optional[int]
    platform: str
    processor: str
    cores: int
    gpu: Optional[str]
    command: list[str]
    git_commit: Optional[str]
    git_changed: Optional[bool]
    data: Optional[DataFingerprint]


@dataclass(frozen=True)
class Origin:
    """The command and the git commit with which a run is started.

    Attributes
    ----------
    command : tuple of str
        The command line.
    git_commit, git_changed
        As in `Provenance`.
    """

    command: tuple[str, ...]
    git_commit: Optional[str]
    git_changed: Optional[bool]

    @classmethod
    def of_this_process(cls) -> "Origin":
        """The command line of this process, and the git commit of its folder."""
        words = getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv]
        return cls(tuple(words), *_git_state(Path.cwd()))


class Capture:
    """Measures a run from the moment when the object is made.

    Parameters
    ----------
    origin : Origin, optional
        The default is that of this process.

    Attributes
    ----------
    data : DataFingerprint or None
        The rows that the run uses, once they are known.
    gpu : str or None
    """

    def __init__(self, origin: Optional[Origin] = None):
        self.data: Optional[DataFingerprint] = None
        self.gpu: Optional[str] = None
        self._started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._wall, self._cpu = time.perf_counter(), _cpu_seconds()
        self._origin = origin or Origin.of_this_process()
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text(_PEAK_RESET)

    def provenance(self) -> Provenance:
        """The provenance that is known so far.

        Times count from the moment when this object was made.
        """
        return Provenance(
            started=self._started,
            wall_seconds=time.perf_counter() - self._wall,
            cpu_seconds=_cpu_seconds() - self._cpu,
            peak_memory=peak_memory(),
            platform=platform.platform(),
            processor=_processor(),
            cores=usable_cores(),
            gpu=self.gpu,
            command=list(self._origin.command),
            git_commit=self._origin.git_commit,
            git_changed=self._origin.git_changed,
            data=self.data,
        )


def _cpu_seconds() -> float:
    """CPU seconds of this process and of its child processes that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _processor() -> str:
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        if match := re.search(r"model name\s*: (.*)", text):
            return match.group(1)
    return platform.processor() or platform.machine()


def _git_state(folder: Path) -> tuple[Optional[str], Optional[bool]]:
    """The commit in `folder`, and whether tracked files differ from it."""
    command = ["git", "-C", str(folder), "status", "--porcelain=v2", "--branch"]
    try:
        done = subprocess.run(
            [*command, "--untracked-files=no"],
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None, None
    lines = done.stdout.splitlines()
    commit = re.search(r"^# branch\.oid ([0-9a-f]+)$", done.stdout, re.MULTILINE)
    if commit is None:  # nothing was ever committed
        return None, None
    return commit.group(1), any(not line.startswith("#") for line in lines)
