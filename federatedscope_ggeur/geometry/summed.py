"""Counts and means of classes with one scatter for all of them, and their exact merge.

LDA, nearest class means and ridge regression need only these. `SummedStatistics` obeys
the law of `ClassStatistics`: adding two objects gives the statistics of both data sets
together.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .moments import Located, Means
from .scatter import Scatter
from .statistics import ClassStatistics


class SummedStatistics(Located):
    """Counts and means of `C` classes, and the sum of their within-class scatters.

    Objects are immutable. All sums are float64, and centred.

    Attributes
    ----------
    counts, means, classes
        As for `ClassStatistics`.

    Notes
    -----
    ``a + b`` is the parallel-axis theorem summed over classes::

        W = W_a + W_b + sum_c (n_ac n_bc / n_c) (mu_ac - mu_bc)(mu_ac - mu_bc)^T
    """

    def __init__(self, located: Means, scatter: Scatter):
        super().__init__(located)
        self._scatter = scatter

    @classmethod
    def empty(cls, num_classes: int, dim: int) -> SummedStatistics:
        """The statistics of no rows at all. Adding them changes nothing."""
        return cls.from_classes(ClassStatistics.empty(num_classes, dim))

    @classmethod
    def from_classes(cls, statistics: ClassStatistics) -> SummedStatistics:
        """Sum the scatters of all classes; keep counts and means."""
        total = Scatter.zero(statistics.dim)
        no_rows = torch.zeros(0, statistics.dim, dtype=torch.float64)
        for c in statistics.classes:
            rows = statistics.stacked_rows(c)
            if rows is None:
                part = Scatter.from_dense(statistics.scatter(c))
            else:
                part = Scatter.from_factor(rows)
            total = total.plus(part, no_rows)
        return cls(statistics.located, total)

    @classmethod
    def from_moments(
        cls,
        counts: Tensor,
        means: Tensor,
        factor: Tensor | None = None,
        scatter: Tensor | None = None,
    ) -> SummedStatistics:
        """Rebuild statistics from the parts that arrived in a message.

        Parameters
        ----------
        counts : Tensor of shape (C,)
        means : Tensor of shape (C, D)
        factor : Tensor of shape (r, D), optional
            ``F`` with ``F^T F = W``.
        scatter : Tensor of shape (D, D), optional
            ``W`` itself. Give either `factor` or `scatter`.
        """
        if scatter is not None:
            held = Scatter.from_dense(scatter.to(torch.float64))
        else:
            assert factor is not None
            held = Scatter.from_factor(factor.to(torch.float64))
        return cls(Means.rounded(counts, means), held)

    def scatter(self) -> Tensor:
        """The summed scatter ``W = sum_c n_c Sigma_c``: Tensor of shape (D, D),
        float64."""
        return self._scatter.matrix()

    def factor(self) -> Tensor:
        """The thin factor ``F`` of shape (rank, D) with ``F^T F = W``.

        F is a function of ``W`` alone; see `thin_factor`.
        """
        return self._scatter.factor()

    def stacked_rows(self) -> Tensor | None:
        """Rows ``R`` of shape (r, D) with ``R^T R = W``; None for a dense scatter.

        R is not canonical. Use it for computations on the spot, and never send it.
        """
        return self._scatter.rows()

    def trace(self) -> float:
        """The trace of the summed scatter W."""
        return self._scatter.trace()

    def diagonal(self) -> Tensor:
        """The diagonal of the summed scatter W: Tensor of shape (D,)."""
        return self._scatter.diagonal()

    def mapped(
        self, centre: Tensor, linear: Callable[[Tensor], Tensor]
    ) -> SummedStatistics:
        """The statistics of the rows ``T (x - centre)``, as for `ClassStatistics`."""
        located = self.located.mapped(centre, linear)
        return SummedStatistics(located, self._scatter.mapped(linear))

    @property
    def factor_is_smaller(self) -> bool:
        """Whether the thin factor of W has fewer numbers than the upper triangle."""
        return self._scatter.factor_is_smaller

    def __add__(self, other: SummedStatistics) -> SummedStatistics:
        if not isinstance(other, SummedStatistics):
            return NotImplemented
        means, between = self.located.plus(other.located)
        return SummedStatistics(means, self._scatter.plus(other._scatter, between))

    def __sub__(self, other: SummedStatistics) -> SummedStatistics:
        if not isinstance(other, SummedStatistics):
            return NotImplemented
        means, between = self.located.minus(other.located)
        if (means.counts <= 1).all():
            # No class has two samples, so the scatter is zero, whatever rounding gives.
            return SummedStatistics(means, Scatter.zero(self.dim))
        if not other.counts.any():
            return self
        return SummedStatistics(means, self._scatter.minus(other._scatter, between))
