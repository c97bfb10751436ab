"""Count, mean and spreads of rows, over all classes together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

import torch
from torch import Tensor

from federatedscope_ggeur.geometry.mean_statistics import MeanStatistics
from federatedscope_ggeur.geometry.statistics import ClassStatistics
from federatedscope_ggeur.geometry.summed import SummedStatistics


@dataclass(frozen=True)
class Totals:
    """The moments of rows without their classes; they tell as much as (n, sum x, sum
    x^2 by dimension).

    ``a + b`` are the totals of both sets of rows. They are kept centred. Far from the
    origin, ``sum |x|^2 / n - |mean|^2`` would be lost to rounding.

    Attributes
    ----------
    count : int
        Rows n.
    mean : Tensor of shape (D,), float64
        Zero without rows.
    spread : float
        ``sum |x - mean|^2``: the trace of the total scatter.
    squares : Tensor of shape (D,), float64
        ``sum (x_d - mean_d)^2`` of each dimension d: its diagonal. Of its own sum
        `spread` differs by rounding.
    """

    count: int
    mean: Tensor
    spread: float
    squares: Tensor

    @classmethod
    def empty(cls, dim: int) -> Totals:
        """The totals of no rows: the zero of the sum."""
        none = torch.zeros(dim, dtype=torch.float64)
        return cls(0, none, 0.0, none)

    @classmethod
    def of_rows(cls, features: Tensor) -> Totals:
        """The totals of rows of shape (n, D), floating point."""
        if not len(features):
            return cls.empty(features.shape[1])
        rows = features.to(torch.float64)
        # Differences from a row are exact where rows are close, and zero if constant.
        centred = rows - rows[0]
        shift = centred.mean(dim=0)
        squares = (centred - shift).square()
        spread = float(squares.sum())
        return cls(len(rows), rows[0] + shift, spread, squares.sum(dim=0))

    @classmethod
    def of_statistics(
        cls, statistics: Union[ClassStatistics, SummedStatistics, MeanStatistics]
    ) -> Totals:
        """The totals of all rows behind class statistics.

        If these are means alone, every row counts as if it lay at its class mean.
        """
        counts = statistics.counts.double()
        total = float(counts.sum())
        if not total:
            return cls.empty(statistics.dim)
        mean = (counts / total) @ statistics.means
        offsets = (statistics.means - mean).square()
        spread, squares = float(counts @ offsets.sum(dim=1)), counts @ offsets
        if not isinstance(statistics, MeanStatistics):
            spread += statistics.trace()
            squares = squares + statistics.diagonal().clamp(min=0)
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
