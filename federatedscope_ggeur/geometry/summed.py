"""Per-class counts and means with one scatter for all classes, and their exact merge.

All that LDA, nearest class means and ridge regression need; `SummedStatistics` obeys
the law of `ClassStatistics`: adding two gives those of the two data sets together.
"""

from __future__ import annotations

import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.geometry.moments import Means
from federatedscope_ggeur.geometry.scatter import Scatter
from federatedscope_ggeur.geometry.statistics import ClassStatistics


class SummedStatistics:
    """Counts and means of `C` classes, and their within-class scatters summed.

    Objects are immutable. Everything is held and accumulated in float64, centred.

    Attributes
    ----------
    counts : Tensor of shape (C,), int64
        Samples of each class.
    means : Tensor of shape (C, D), float64
        Class means; zero where a class has no samples.
    classes : list of int
        Classes with at least one sample, ascending.

    Notes
    -----
    ``a + b`` is the parallel-axis theorem summed over classes::

        W = W_a + W_b + sum_c (n_ac n_bc / n_c) (mu_ac - mu_bc)(mu_ac - mu_bc)^T
    """

    def __init__(self, means: Means, scatter: Scatter):
        self._means = means
        self._scatter = scatter

    @classmethod
    def empty(cls, num_classes: int, dim: int) -> SummedStatistics:
        """Statistics of no data at all: the zero of the algebra."""
        return cls.from_classes(ClassStatistics.empty(num_classes, dim))

    @classmethod
    def from_classes(cls, statistics: ClassStatistics) -> SummedStatistics:
        """The sum over classes of statistics that hold a scatter for each."""
        total = _zero_scatter(statistics.dim)
        for c in statistics.classes:
            rows = statistics.stacked_rows(c)
            if rows is None:
                part = Scatter.from_dense(statistics.scatter(c))
            else:
                part = Scatter.from_factor(rows)
            total = total.plus(part, _no_rows(statistics.dim))
        return cls(statistics.located(), total)

    @classmethod
    def from_moments(
        cls,
        counts: Tensor,
        means: Tensor,
        factor: Tensor | None = None,
        scatter: Tensor | None = None,
    ) -> SummedStatistics:
        """Statistics rebuilt from their parts, as they arrive in a message.

        Parameters
        ----------
        counts : Tensor of shape (C,)
        means : Tensor of shape (C, D)
        factor : Tensor of shape (r, D), optional
            ``F`` with ``F^T F = W``.
        scatter : Tensor of shape (D, D), optional
            ``W`` itself; one of the two must be given.

        Raises
        ------
        StatisticsError
            Both or neither of `factor` and `scatter`, or shapes that do not fit.
        """
        counts = counts.to(torch.int64).clone()
        high = means.to(torch.float64).clone()
        high[counts == 0] = 0
        dim = high.shape[1]
        if factor is not None and scatter is None:
            name, given, shape = "factor", factor, (len(factor), dim)
        elif scatter is not None and factor is None:
            name, given, shape = "scatter", scatter, (dim, dim)
        else:
            raise StatisticsError(
                "summed statistics take either a factor or a scatter: give one of them"
            )
        if given.shape != shape:
            raise StatisticsError(
                f"a {name} of shape {tuple(given.shape)} does not fit means in {dim} "
                "dimensions"
            )
        build = Scatter.from_factor if name == "factor" else Scatter.from_dense
        located = Means(counts, high, torch.zeros_like(high))
        return cls(located, build(given.to(torch.float64)))

    @property
    def counts(self) -> Tensor:
        return self._means.counts

    @property
    def means(self) -> Tensor:
        return self._means.high

    @property
    def num_classes(self) -> int:
        return self.means.shape[0]

    @property
    def dim(self) -> int:
        return self.means.shape[1]

    @property
    def classes(self) -> list[int]:
        return torch.nonzero(self.counts).flatten().tolist()

    def scatter(self) -> Tensor:
        """``W = sum_c n_c Sigma_c``: Tensor of shape (D, D), float64."""
        return self._scatter.matrix()

    def factor(self) -> Tensor:
        """The thin factor ``F`` of shape (rank, D), ``F^T F = W``.

        It is a function of ``W`` alone; see `thin_factor`.
        """
        return self._scatter.factor()

    @property
    def factor_is_smaller(self) -> bool:
        """Whether the thin factor takes fewer numbers than the upper triangle."""
        return self._scatter.factor_is_smaller

    def __add__(self, other: SummedStatistics) -> SummedStatistics:
        if not isinstance(other, SummedStatistics):
            return NotImplemented
        means, between = self._means.plus(other._means)
        return SummedStatistics(means, self._scatter.plus(other._scatter, between))

    def __radd__(self, other):
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other: SummedStatistics) -> SummedStatistics:
        if not isinstance(other, SummedStatistics):
            return NotImplemented
        means, between = self._means.minus(other._means)
        if (means.counts <= 1).all():
            # Without two samples in a class a scatter is zero, rounding or not.
            return SummedStatistics(means, _zero_scatter(self.dim))
        if not other.counts.any():
            return self
        return SummedStatistics(means, self._scatter.minus(other._scatter, between))

    def __repr__(self) -> str:
        return (
            f"SummedStatistics({len(self.classes)} of {self.num_classes} classes, "
            f"{int(self.counts.sum())} samples, dim {self.dim})"
        )


def _no_rows(dim: int) -> Tensor:
    return torch.zeros(0, dim, dtype=torch.float64)


def _zero_scatter(dim: int) -> Scatter:
    return Scatter.from_factor(_no_rows(dim))
