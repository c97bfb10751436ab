"""Class statistics in few bytes: the leading directions of one pooled scatter, rounded.

Clients send `CompressedStatistics`. Its `restore` gives statistics that merge like all
others.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .scatter import RoundedRows
from .statistics import Statistics


@dataclass(frozen=True)
class Compression:
    """How much of the statistics compression keeps.

    Attributes
    ----------
    rank : int or None
        The largest number of directions of the scatter to keep; None keeps all.
    energy : float
        Share of the scatter's trace to keep, above 0 and at most 1. Only as many
        directions are kept as hold this share. 1 keeps as many as `rank` allows.
    dtype : {"float32", "float16", "int8"}
        The type that means and directions are rounded to, with one scale for each row.
    """

    rank: int | None = None
    energy: float = 1.0
    dtype: str = "float32"

    def kept(self, squares: Tensor) -> int:
        """Number of directions to keep, given their eigenvalues [r] in descending
        order."""
        rank = len(squares)
        if self.energy < 1 and rank:
            held = squares.cumsum(dim=0)
            rank = int((held < self.energy * held[-1]).sum()) + 1
        return rank if self.rank is None else min(rank, self.rank)


@dataclass(frozen=True)
class CompressedStatistics:
    """Counts, and rounded means and directions of the pooled scatter.

    Attributes
    ----------
    counts : Tensor of shape (C,), int64
    means : RoundedRows of shape (K + 1, D), or (0, D) without samples
        The first row is the mean of all rows. Then comes one row for each of the K
        classes with samples: its mean minus the rounded first row. So rounding errors
        scale with the distance of a mean from the other means, not with its distance
        from the origin.
    factor : RoundedRows of shape (r, D), or None
        The factor of the first r directions of W, see Notes. None if there are only
        means.
    left_out : float
        Trace of W beyond these directions.

    Notes
    -----
    With eigenvalues s_i and eigenvectors v_i of W, the restored scatter is ::

        W' = sum_{i <= r} (s_i - t) v_i v_i^T + t I,   t = sum_{i > r} s_i / (D - r)

    W' has the first r eigenvalues and the trace of W. Its other eigenvalues are the
    mean of those left out. Of all matrices of this form, W' is the nearest to W. It is
    also the maximum-likelihood covariance of probabilistic principal components.

    Int8 rounds the directions in steps. The step is the root mean square of the entries
    of the last kept direction. The squared error of an entry is then a twelfth of the
    squared step on average. Leaving out the next direction would cost more. Weaker
    directions take few bits.

    References
    ----------
    Tipping, Bishop, "Probabilistic principal component analysis", 1999, Eq. 3.7.
    """

    counts: Tensor
    means: RoundedRows
    factor: RoundedRows | None
    left_out: float

    @classmethod
    def of(cls, statistics: Statistics, how: Compression) -> CompressedStatistics:
        """Compress `statistics`."""
        classes, located = statistics.classes, statistics.located
        counts = located.counts[classes].double()
        means = _round_means(located.high, located.low, classes, counts, how.dtype)
        if statistics.content == "means":
            return cls(statistics.counts, means, None, 0.0)
        whole = statistics.factor()
        factor, left_out = _shortened(whole, how)
        # Rounding adds a twelfth of the squared step to an entry's square, on average.
        step = float(whole[len(factor) - 1].norm()) if len(factor) else 0.0
        rounded = RoundedRows.of(factor, how.dtype, step / statistics.dim**0.5)
        return cls(statistics.counts, means, rounded, left_out)

    def restore(self) -> Statistics:
        """Restore the statistics, so that they can be merged."""
        means = self._means()
        if self.factor is None:
            return Statistics.of_means(self.counts, means)
        rows, even = self.factor.rows(), self._even()
        if even == 0:
            return Statistics.of_pooled(self.counts, means, factor=rows)
        return Statistics.of_pooled(self.counts, means, scatter=_spread(rows, even))

    def _means(self) -> Tensor:
        """Means [C, D], zero where a class has no samples."""
        rows = self.means.rows()
        means = rows.new_zeros(len(self.counts), rows.shape[1])
        if len(rows):
            means[self.counts > 0] = rows[0] + rows[1:]
        return means

    def _even(self) -> float:
        """The part of `left_out` that `restore` gives each direction left out."""
        if self.factor is None or self.left_out == 0:
            return 0.0
        rank, dim = self.factor.numbers.shape
        return self.left_out / (dim - rank)


def _round_means(
    high: Tensor, low: Tensor, classes: list[int], counts: Tensor, dtype: str
) -> RoundedRows:
    """Round the means ``high + low`` [C, D] of `classes`.

    The result has the layout of `CompressedStatistics.means`.
    """
    high, low = high[classes], low[classes]
    if not classes:
        return RoundedRows.of(high, dtype)
    origin = (counts / counts.sum()) @ high
    first = RoundedRows.of(origin[None], dtype)
    others = RoundedRows.of((high - first.rows()) + low, dtype)
    return RoundedRows(
        torch.cat([first.numbers, others.numbers]),
        torch.cat([first.scales, others.scales]),
    )


def _shortened(factor: Tensor, how: Compression) -> tuple[Tensor, float]:
    """The rows of a thin factor [R, D] to keep, and the trace of the other rows.

    The kept rows become shorter, because `restore` adds an even part to all directions.
    """
    lengths = factor.norm(dim=1)
    squares = lengths.square()
    rank, dim = how.kept(squares), factor.shape[1]
    left_out = float(squares[rank:].sum())
    if left_out == 0:
        return factor[:rank], 0.0
    share = (1 - left_out / (dim - rank) / squares[:rank]).clamp(min=0).sqrt()
    return share[:, None] * factor[:rank], left_out


def _spread(rows: Tensor, even: float) -> Tensor:
    """The matrix ``R^T R + even I`` [D, D] for rows R [r, D]."""
    identity = torch.eye(rows.shape[1], dtype=rows.dtype)
    return rows.T @ rows + even * identity
