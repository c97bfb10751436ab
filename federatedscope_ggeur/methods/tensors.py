"""Rules for tensors from clients, so that one client cannot harm the others.

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
    """Shape and dtype of a tensor that a client sends. None in a shape: any length."""

    shape: tuple[int | None, ...]
    dtype: torch.dtype = torch.float32


Specs = Mapping[str, TensorSpec]


def value_problem(what: str, values: Tensor) -> str:
    """The problem of `what` for a message, if any of `values` is too large; else ""."""
    if (values.abs() > LARGEST_EMBEDDING).any():
        return f"{what} must lie within +-{LARGEST_EMBEDDING:g}"
    return ""


def count_problem(what: str, counts: Tensor) -> str:
    """The problem of `what` for a message, if one of `counts` is impossible; or ""."""
    if ((counts < 0) | (counts > _MOST_ROWS)).any():
        return f"{what} must lie in 0..{_MOST_ROWS}"
    return ""
