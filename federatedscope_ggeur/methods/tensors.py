"""Rules for tensors from clients: one client must not harm the others.

A wrong dtype would spread to the sums over all clients. So would a number near the
limit of float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from federatedscope_ggeur.geometry import LARGEST_EMBEDDING

#: No client has more rows. Sums over clients stay within int64.
_MOST_ROWS = 2**40


@dataclass(frozen=True)
class TensorSpec:
    """The shape (None: any length) and dtype of a tensor that a client sends."""

    shape: tuple[int | None, ...]
    dtype: torch.dtype = torch.float32


Specs = Mapping[str, TensorSpec]


def value_problem(what: str, values: Tensor) -> str:
    """What is wrong with `what` if any of its `values` is too large, else ""."""
    if (values.abs() > LARGEST_EMBEDDING).any():
        return f"{what} must lie within {LARGEST_EMBEDDING:g}"
    return ""


def count_problem(what: str, counts: Tensor) -> str:
    """What is wrong with `what` if any of its `counts` cannot be one, else ""."""
    if ((counts < 0) | (counts > _MOST_ROWS)).any():
        return f"{what} must lie in 0..{_MOST_ROWS}"
    return ""
