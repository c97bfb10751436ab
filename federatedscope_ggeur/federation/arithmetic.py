"""How a GPU is asked to compute: the same each time, and in full float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def exact(device: torch.device) -> Iterator[None]:
    """Within, convolutions on a GPU are the same each time.

    cuDNN's defaults take whichever algorithm is quick, and TF32, which keeps 10 bits
    of an operand.
    """
    if device.type != "cuda":
        yield
        return
    flags = {"enabled": True, "benchmark": False, "deterministic": True}
    with torch.backends.cudnn.flags(**flags, allow_tf32=False):
        yield
