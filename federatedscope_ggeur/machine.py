"""What this process may use of its machine, and what it has used."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path


def usable_cores() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def start_method() -> str:
    """How `multiprocessing` had best begin a process: "fork", which takes objects as
    they are and imports nothing again, or "spawn" where there is no fork (Windows) or
    system libraries do not support it (macOS)."""
    return "fork" if sys.platform == "linux" else "spawn"


def peak_memory() -> int | None:
    """The most bytes that this process held since the start of the run; where that
    cannot be told from the time before, of the whole process; None if neither can."""
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text()
        found = re.search(r"VmHWM:\s*(\d+) kB", status)
        if found:
            return int(found.group(1)) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
