"""Python in a process of its own, with which what is registered there ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from federatedscope_ggeur.cli import main

ROOT = Path(__file__).parents[1]
#: Seconds that only a hang reaches, on a busy machine too.
PATIENCE = 900.0


def python(
    *words: object, cwd: Path | None = None, path: str = ""
) -> subprocess.CompletedProcess:
    """``python WORDS`` with this checkout's package, whatever its exit status; `path`
    is looked in as well."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env=_environment(path),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def program(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess:
    """``ggeur WORDS``, as `python`."""
    return python("-m", "federatedscope_ggeur", *words, cwd=cwd)


def forked(words: Sequence[str], said: Path):
    """``ggeur WORDS`` in a fork of this process, as a shell's job.

    It has imported all that a program takes seconds for. What it says is in a file.
    """
    process = get_context("fork").Process(target=_forked, args=(words, said))
    process.start()
    return process


def keep_one_thread() -> None:
    """Let torch use one thread here, whatever the program asks for.

    A fork has none of the threads of OpenMP. If its parent has used them, it would wait
    for them for ever.
    """
    torch.set_num_threads(1)
    torch.set_num_threads = lambda number: None


def _forked(words: Sequence[str], said: Path) -> None:
    os.setsid()
    keep_one_thread()
    output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.exit(main(words))


def until(found, process=None) -> None:
    """Wait until `found()` is true, while a process goes on."""
    last = time.monotonic() + PATIENCE
    while not found():
        if process is not None:
            assert process.is_alive(), f"it ended with {process.exitcode}"
        assert time.monotonic() < last, "it did not happen"
        time.sleep(0.02)


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that run (Linux)."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended
            found += map(int, file.read_text().split())
    return [child for child in found if is_there(child)]


def is_there(pid: int) -> bool:
    """Whether a process runs: it is neither gone nor waiting to be collected."""
    return stat_of(pid)[0] != "Z"


def stat_of(pid: int) -> list[str]:
    """What /proc/PID/stat holds behind the name; nothing of a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return ["Z"]


#: What a run imports, with which `in_turn` begins.
OF_A_RUN = "import federatedscope_ggeur.commands.console, matplotlib.pyplot"
#: What FederatedScope imports of others, a third of torch with the first optimiser.
OF_FS = (
    "import torch, matplotlib.pyplot, pandas, scipy.stats, sklearn.metrics; "
    "torch.optim.SGD([torch.zeros(1)], lr=0.1)"
)


def in_turn(
    calls: Sequence[Sequence[str]],
    cwd: Path,
    first: str = OF_A_RUN,
    path: str = "",
    seconds: float = PATIENCE,
    places: Sequence[Path] = (),
) -> list[tuple[int, str]]:
    """Exit status and output of each ``python WORDS``, run in `cwd` in this order.

    Each is a fork of one process, which has executed `first`: most programs take longer
    to import than to run. `places` are the folders of calls that have others than
    `cwd`.
    """
    if not hasattr(os, "fork"):
        pytest.skip("the runs are forked, which this system cannot")
    given = json.dumps(list(zip(calls, map(str, places or [cwd] * len(calls)))))
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("forks.py"), first, given],
        cwd=cwd,
        env=_environment(path),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=seconds,
    )
    outputs = [(cwd / f"output_{n}").read_text() for n in range(len(calls))]
    return list(zip(map(int, done.stdout.split()), outputs))


def _environment(path: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{path}"}
