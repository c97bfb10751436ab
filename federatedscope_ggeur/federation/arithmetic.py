"""Tools for arithmetic that repeats exactly, and checks that numbers are finite."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def exact(device: torch.device, tf32: bool = False) -> Iterator[None]:
    """A context in which convolutions on a GPU repeat exactly.

    By default cuDNN takes the fastest algorithm, which may differ from run to run. It
    also uses TF32, which keeps only 10 bits of an operand. Here only `tf32` does that,
    for matrix products as well.
    """
    if device.type != "cuda":
        yield
        return
    flags = {"enabled": True, "benchmark": False, "deterministic": True}
    products = torch.backends.cuda.matmul
    before = products.allow_tf32
    with torch.backends.cudnn.flags(**flags, allow_tf32=tf32):
        products.allow_tf32 = tf32
        try:
            yield
        finally:
            products.allow_tf32 = before


def largest(values: Tensor) -> float:
    """The largest absolute value; 0 if there are no values, NaN if one is NaN."""
    if not values.numel():
        return 0.0
    least, most = values.aminmax()
    return max(-float(least), float(most))


def is_finite(values: Tensor) -> bool:
    """Whether all values are finite.

    This takes one pass over the values. `torch.isfinite` takes several.
    """
    return not values.is_floating_point() or math.isfinite(largest(values))
