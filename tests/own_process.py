"""Python in a process of its own, with which what is registered there ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def python(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess:
    """``python WORDS`` with this checkout's package, whatever its exit status."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def program(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess:
    """``federatedscope-ggeur WORDS``, as `python`."""
    return python("-m", "federatedscope_ggeur", *words, cwd=cwd)
