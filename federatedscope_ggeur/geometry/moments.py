"""Mean and scatter of one class's rows, and means more exact than float64."""

from __future__ import annotations

import torch
from torch import Tensor

from federatedscope_ggeur.geometry.scatter import Scatter


def moments(rows: Tensor) -> tuple[Tensor, Tensor, Scatter]:
    """Mean (as high + low part) and scatter of rows [n, D] in float64."""
    # Differences from a row are exact where rows are close, and zero if constant.
    offset = rows[0]
    centred = rows - offset
    shift = centred.mean(dim=0)
    centred = centred - shift
    residue = centred.mean(dim=0)
    centred -= residue
    high, low = add_to_mean(offset, torch.zeros_like(offset), shift + residue)
    return high, low, Scatter.from_centred(centred)


def add_to_mean(high: Tensor, low: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """``(high + low) + step`` as a double-double (Knuth's two-sum, renormalised)."""
    total = high + step
    back = total - high
    error = (high - (total - back)) + (step - back) + low
    new_high = total + error
    return new_high, error - (new_high - total)
