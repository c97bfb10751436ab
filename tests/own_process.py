"""Python in a process of its own, with which what is registered there ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import pytest

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


#: What a run imports, with which `in_turn` begins.
OF_A_RUN = "import federatedscope_ggeur.commands.console, matplotlib.pyplot"


def in_turn(
    calls: Sequence[Sequence[str]],
    cwd: Path,
    hidden: Sequence[Sequence[str]] = (),
    first: str = OF_A_RUN,
    path: str = "",
    seconds: float = PATIENCE,
) -> list[tuple[int, str]]:
    """Exit status and output of each ``python WORDS``, run in `cwd` in this order.

    Each is a fork of one process, which has executed `first`: most programs take longer
    to import than to run. `hidden` are packages, for each call, that are not there.
    """
    if not hasattr(os, "fork"):
        pytest.skip("the runs are forked, which this system cannot")
    given = json.dumps(list(zip_longest(calls, hidden, fillvalue=())))
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
