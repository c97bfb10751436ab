"""Count, mean and spread of rows, over all classes together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.geometry.mean_statistics import MeanStatistics
from federatedscope_ggeur.geometry.statistics import ClassStatistics
from federatedscope_ggeur.geometry.summed import SummedStatistics


@dataclass(frozen=True)
class Totals:
    """The moments of rows without their classes; they tell as much as (n, sum x, sum
    |x|^2).

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
    """

    count: int
    mean: Tensor
    spread: float

    @classmethod
    def empty(cls, dim: int) -> Totals:
        """The totals of no rows: the zero of the sum."""
        return cls(0, torch.zeros(dim, dtype=torch.float64), 0.0)

    @classmethod
    def of_rows(cls, features: Tensor) -> Totals:
        """The totals of rows of shape (n, D), floating point."""
        if not len(features):
            return cls.empty(features.shape[1])
        rows = features.to(torch.float64)
        # Differences from a row are exact where rows are close, and zero if constant.
        centred = rows - rows[0]
        shift = centred.mean(dim=0)
        spread = float((centred - shift).square().sum())
        return cls(len(rows), rows[0] + shift, spread)

    @classmethod
    def of_statistics(
        cls, statistics: Union[ClassStatistics, SummedStatistics, MeanStatistics]
    ) -> Totals:
        """The totals of all rows behind class statistics.

        If these are means alone, `spread` counts every row as if it lay at its class
        mean.
        """
        counts = statistics.counts.double()
        total = float(counts.sum())
        if not total:
            return cls.empty(statistics.dim)
        mean = (counts / total) @ statistics.means
        offsets = (statistics.means - mean).square().sum(dim=1)
        spread = float(counts @ offsets)
        if not isinstance(statistics, MeanStatistics):
            spread += statistics.trace()
        return cls(int(total), mean, spread)

    def __add__(self, other: Totals) -> Totals:
        if not isinstance(other, Totals):
            return NotImplemented
        if self.mean.shape != other.mean.shape:
            raise StatisticsError(
                f"totals in {len(self.mean)} dimensions do not fit those in "
                f"{len(other.mean)}"
            )
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        delta, share = other.mean - self.mean, other.count / count
        between = float(delta.square().sum()) * self.count * share
        spread = self.spread + other.spread + between
        return Totals(count, self.mean + share * delta, spread)

    def __radd__(self, other):
        return self if isinstance(other, int) and other == 0 else NotImplemented
