"""GPU arithmetic that repeats exactly, in full float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def exact(device: torch.device) -> Iterator[None]:
    """A context in which convolutions on a GPU repeat exactly.

    By default cuDNN takes whichever algorithm is fast, and TF32, which keeps 10 bits of
    an operand.
    """
    if device.type != "cuda":
        yield
        return
    flags = {"enabled": True, "benchmark": False, "deterministic": True}
    with torch.backends.cudnn.flags(**flags, allow_tf32=False):
        yield
