"""Count, mean and spread of rows, over all classes together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .statistics import Statistics

#: A deviation below this share of the mean is rounding: float64 resolves 1e-16.
_OF_MEAN = 1e-10
#: So is one below this share of the widest deviation of a dimension. A thin factor
#: spreads the rounding of wide dimensions over all others: a feature that is 0 in all
#: rows seems to vary by some 1e-15 of them. Units may truly differ by 12 orders.
_OF_WIDEST = 1e-13


def varying(variances: Tensor, means: Tensor) -> Tensor:
    """Which dimensions vary by more than rounding.

    Parameters
    ----------
    variances, means : Tensor of shape (D,), float64

    Returns
    -------
    Tensor of shape (D,), bool
    """
    of_mean, of_widest = (_OF_MEAN * means).square(), _OF_WIDEST**2 * variances.max()
    return variances > torch.maximum(of_mean, of_widest)


@dataclass(frozen=True)
class Totals:
    """Count, mean and spread of rows, without their classes.

    The totals reveal as much as n, sum x, and sum x^2 of each dimension. ``a + b`` are
    the totals of both sets of rows. All numbers are centred: far from the origin,
    rounding would destroy ``sum |x|^2 / n - |mean|^2``.

    Attributes
    ----------
    count : int
        The number of rows n.
    mean : Tensor of shape (D,), float64
        Zero without rows.
    spread : float
        The trace of the total scatter, ``sum |x - mean|^2``.
    squares : Tensor of shape (D,), float64
        The diagonal of the total scatter: ``sum (x_d - mean_d)^2`` for each dimension
        d. Its sum equals `spread` up to rounding.
    """

    count: int
    mean: Tensor
    spread: float
    squares: Tensor

    @classmethod
    def empty(cls, dim: int) -> Totals:
        """The totals of no rows at all. Adding them changes nothing."""
        none = torch.zeros(dim, dtype=torch.float64)
        return cls(0, none, 0.0, none)

    @classmethod
    def of_rows(cls, features: Tensor) -> Totals:
        """Compute the totals of floating-point rows of shape (n, D)."""
        if not len(features):
            return cls.empty(features.shape[1])
        rows = features.to(torch.float64)
        # Differences from a row are exact if rows are close, and zero if all are equal.
        centred = rows - rows[0]
        shift = centred.mean(dim=0)
        squares = (centred - shift).square()
        spread = float(squares.sum())
        return cls(len(rows), rows[0] + shift, spread, squares.sum(dim=0))

    @classmethod
    def of_statistics(cls, statistics: Statistics) -> Totals:
        """The totals of all rows behind class statistics.

        If the statistics have no scatter, every row counts as if it lay at its class
        mean.
        """
        counts = statistics.weights
        total = float(counts.sum())
        if not total:
            return cls.empty(statistics.dim)
        mean = (counts / total) @ statistics.means
        offsets = (statistics.means - mean).square()
        spread = float(counts @ offsets.sum(dim=1)) + statistics.trace()
        squares = counts @ offsets + statistics.diagonal().clamp(min=0)
        return cls(int(total), mean, spread, squares)

    def __add__(self, other: Totals) -> Totals:
        if not isinstance(other, Totals):
            return NotImplemented
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        delta, share = other.mean - self.mean, other.count / count
        between = delta.square()
        spread = self.spread + other.spread
        spread += float(between.sum()) * self.count * share
        squares = self.squares + other.squares + between * (self.count * share)
        return Totals(count, self.mean + share * delta, spread, squares)

    def __radd__(self, other):
        return self if isinstance(other, int) and other == 0 else NotImplemented
