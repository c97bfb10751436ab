"""Arithmetic that repeats exactly, and whether its numbers are finite."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


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


def largest(values: Tensor) -> float:
    """The largest absolute value; 0 of no values, NaN if one is NaN."""
    return float(values.abs().max()) if values.numel() else 0.0


def is_finite(values: Tensor) -> bool:
    """Whether no value is NaN or infinite. One pass, `torch.isfinite` takes several."""
    return not values.is_floating_point() or math.isfinite(largest(values))
