"""Python in a process of its own, with which what is registered there ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def python(
    *words: object, cwd: Path | None = None, path: str = ""
) -> subprocess.CompletedProcess:
    """``python WORDS`` with this checkout's package, whatever its exit status; `path`
    is looked in as well."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{path}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def program(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess:
    """``ggeur WORDS``, as `python`."""
    return python("-m", "federatedscope_ggeur", *words, cwd=cwd)
