"""Histograms with soft bins, and their divergence (FedFA+, Eqs. 11-14)."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from federatedscope_ggeur.machine import sent

#: Added to every bin before a divergence, because bins may be 0 at a small temperature.
SMOOTHING = 1e-3

# Rows that are binned at once. Bins take `bins` times the memory of features.
_ROWS = 1024


def soft_histogram(values: Tensor, bins: int, temperature: float) -> Tensor:
    """The histogram with soft bins of each column (Eqs. 11-13).

    Every column is scaled to 0..1 by its smallest and largest value, without a gradient
    through these. A constant column becomes 0. Then ``Phi(z) = softmax((w z + b) / t)``
    with ``w = 1..L`` and ``b = -[0, cumsum(rho)]``. rho are the L - 1 cut points,
    spread evenly over ``0..1``. The histogram is the mean of Phi. The first and the
    last bin lie outside 0..1 and get only the smallest and the largest values.

    Parameters
    ----------
    values : Tensor of shape (n, C)
        The values, with n > 0.
    bins : int
        The number of bins L, at least 3.
    temperature : float
        The temperature t.

    Returns
    -------
    Tensor of shape (C, L)
        The histograms. Each row sums to 1.
    """
    low, high = torch.aminmax(values.detach(), dim=0)
    width = high - low
    # A constant column becomes 0, and has no gradient.
    scale = torch.where(width > 0, width.reciprocal(), torch.zeros_like(width))
    constants = _bins(bins, temperature).to(values.dtype)
    slope, offset = sent(constants, values.device)[..., None, None]
    # Bins come first: a softmax over the last dimension, of 8, is ten times slower.
    parts = [
        torch.addcmul(offset, part, slope).softmax(dim=0).sum(dim=1)
        for part in ((values - low) * scale).split(_ROWS)
    ]
    return sum(parts[1:], parts[0]).t() / len(values)


@lru_cache(maxsize=8)
def _bins(bins: int, temperature: float) -> Tensor:
    """The constants ``w / t`` and ``b / t`` of soft bins: shape (2, L), float64."""
    slope = torch.arange(1, bins + 1, dtype=torch.float64)
    cuts = (slope[:-1] - 1) / (bins - 2)
    offset = -torch.cat([cuts.new_zeros(1), cuts.cumsum(0)])
    return torch.stack([slope, offset]) / temperature


def symmetric_divergence(one: Tensor, other: Tensor) -> Tensor:
    """The symmetric divergence of two histograms for each row (Eq. 14): shape (C,).

    It is ``1/2 (KL(p || q) + KL(q || p))``, in nats. p and q are the histograms `one`
    and `other` [C, L], each smoothed to ``(pi + s) / (1 + s L)``, s = `SMOOTHING`.
    """
    total = 1 + SMOOTHING * one.shape[-1]
    p, q = ((pi + SMOOTHING) / total for pi in (one, other))
    return 0.5 * ((p - q) * (p / q).log()).sum(dim=-1)
