"""Cores and memory that this process may use, and the memory that it has used."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # --help needs no torch
    import torch
    from torch import Tensor


def usable_cores() -> int:
    """Number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Run torch on `number` threads, then on as many as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A CPU tensor on `device`. Neither a GPU nor this process waits for the copy."""
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def free_memory(device: torch.device) -> int | None:
    """Bytes of a GPU's memory that nobody uses; None for a CPU."""
    import torch

    if device.type == "cpu" or not torch.cuda.is_available():
        return None
    return torch.cuda.mem_get_info(device)[0]


def start_method() -> str:
    """The best way for `multiprocessing` to start a process on this machine.

    "fork" passes objects as they are and imports nothing again. "spawn" is for Windows,
    which has no fork, and for macOS, whose system libraries do not support fork.
    """
    return "fork" if sys.platform == "linux" else "spawn"


def available_memory() -> int | None:
    """Bytes of memory that a new process can get; None if the system does not tell."""
    with contextlib.suppress(OSError):
        found = re.search(
            r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text()
        )
        if found:
            return int(found.group(1)) * 1024
    return None


def peak_memory() -> int | None:
    """The peak memory of this process in bytes; None if the system does not tell.

    On Linux this is the peak since the start of the run, because `reporting.provenance`
    resets the peak there. Elsewhere it is the peak since the start of the process.
    """
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
