"""Cores, memory and devices: what this process may use, and how it computes there."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


@contextlib.contextmanager
def exact(device: torch.device, tf32: bool = False) -> Iterator[None]:
    """A context in which convolutions on a GPU repeat exactly.

    By default cuDNN takes the fastest algorithm, which may differ from run to run. It
    also uses TF32, which keeps only 10 bits of an operand. Here only `tf32` does that,
    for matrix products as well.
    """
    if device.type != "cuda":
        yield
        return
    import torch

    flags = {"enabled": True, "benchmark": False, "deterministic": True}
    products = torch.backends.cuda.matmul
    before = products.allow_tf32
    with torch.backends.cudnn.flags(**flags, allow_tf32=tf32):
        products.allow_tf32 = tf32
        try:
            yield
        finally:
            products.allow_tf32 = before


def end_processes(processes: Sequence[Any], seconds: float) -> None:
    """Ask child processes to end, and kill those that still run after `seconds`."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(seconds)
        if process.is_alive():  # a signal that comes as it starts may be lost
            process.kill()
            process.join()


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A CPU tensor on `device`. Neither a GPU nor this process waits for the copy."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def fetched(tensor: Tensor) -> Tensor:
    """A copy of a tensor in the CPU's memory.

    From a GPU it goes into pinned memory, which takes a fraction of the time. torch
    keeps such memory for the next copy.
    """
    if not tensor.is_cuda:
        return tensor.to("cpu", copy=True)
    import torch

    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return copy.copy_(tensor)


def free_memory(device: torch.device) -> int | None:
    """Bytes of a GPU's memory that nobody uses; None for a CPU."""
    import torch

    if device.type == "cpu" or not torch.cuda.is_available():
        return None
    return torch.cuda.mem_get_info(device.index)[0]


class _Plain:
    """How many calls in all threads are within `plain_torch`, and what was before."""

    lock = threading.Lock()
    calls = 0
    before: tuple = ()


@contextlib.contextmanager
def plain_torch() -> Iterator[None]:
    """Compute in torch as it is by default, whatever the caller has set.

    New tensors are float32 on the CPU, and there is neither autocast nor inference
    mode. Torch's global generator ends as it began. The default dtype belongs to the
    process: the first call sets it, and the last one that ends sets it back.
    """
    import torch  # here, since --help needs none of it

    with _Plain.lock:
        if not _Plain.calls:
            _Plain.before = torch.get_default_dtype(), torch.random.get_rng_state()
            torch.set_default_dtype(torch.float32)
        _Plain.calls += 1
    try:
        # A default device makes every call of torch slower, so none is set needlessly.
        is_elsewhere = torch.empty(0).device.type != "cpu"
        device = torch.device("cpu") if is_elsewhere else contextlib.nullcontext()
        autocast = torch.autocast("cpu", enabled=False)
        with torch.inference_mode(False), autocast, device:
            yield
    finally:
        with _Plain.lock:
            _Plain.calls -= 1
            if not _Plain.calls:
                dtype, state = _Plain.before
                torch.set_default_dtype(dtype)
                torch.random.set_rng_state(state)


def start_method() -> str:
    """The best way for `multiprocessing` to start a process on this machine.

    "fork" passes objects as they are and imports nothing again. "spawn" is for Windows,
    which has no fork, and for macOS, whose system libraries do not support fork.
    """
    return "fork" if sys.platform == "linux" else "spawn"


def peak_memory() -> int | None:
    """The peak memory of this process in bytes; None if the system does not tell.

    On Linux this is the peak since the start of the run, because `reporting.provenance`
    resets the peak there. Elsewhere it is the peak since the start of the process.
    """
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text()
        if match := re.search(r"VmHWM:\s*(\d+) kB", status):
            return int(match.group(1)) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
