"""A scatter, e.g. ``n Sigma`` of one class, stored as a matrix or as a factor.

The smaller of the two forms is stored.

Mean and scatter of one class's rows; means with twice the precision of float64.

Rows in few bits, each row with its own scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError


def canonical_signs(vectors: Tensor) -> Tensor:
    """Flip rows of shape (r, D) so that the largest entry of each is positive.

    If several entries are within 1% of the largest, the first of them counts. Else
    rounding would decide the sign for mirrored columns, as in ``(x, -x)``.
    """
    if vectors.shape[0] == 0:
        return vectors
    sizes = vectors.abs()
    near_largest = sizes >= 0.99 * sizes.amax(dim=1, keepdim=True)
    first = near_largest.to(torch.uint8).argmax(dim=1, keepdim=True)
    signs = torch.where(vectors.gather(1, first) < 0, -1.0, 1.0)
    return vectors * signs.to(vectors.dtype)


def thin_factor(rows: Tensor) -> Tensor:
    """The canonical factor ``F = diag(s) V^T`` of rows ``Z = U diag(s) V^T``.

    Parameters
    ----------
    rows : Tensor of shape (n, D), float64

    Returns
    -------
    Tensor of shape (rank, D)
        F, with ``F^T F = Z^T Z``. Its rows are orthogonal, the longest first.

    Notes
    -----
    F depends on ``Z^T Z`` alone. It has no part of U, because U contains all that Z
    reveals beyond its scatter. For equal singular values a fixed rule chooses the
    directions.
    Do not use a triangular QR factor: if the leading columns of Z are zero, that factor
    is the rows themselves.
    """
    if rows.shape[0] == 0:
        return rows
    _, values, directions = torch.linalg.svd(rows, full_matrices=False)
    floor = values[0] * max(rows.shape) * torch.finfo(rows.dtype).eps
    rank = int((values > floor).sum())
    return canonical_signs(_settle_ties(values[:rank, None] * directions[:rank]))


def _settle_ties(factor: Tensor) -> Tensor:
    """Replace orthogonal rows of equal length by a fixed basis of their span.

    For equal singular values, the rows of a decomposition depend on its input. The
    result here depends on ``F^T F`` alone. Rows must be sorted, the longest first.
    Lengths count as equal if they differ by less than 1e-8 of the largest: such a
    difference is rounding.
    """
    lengths = factor.norm(dim=1)
    apart = lengths[:-1] - lengths[1:] > 1e-8 * lengths[:1]
    if apart.all():
        return factor
    edges = [0, *(torch.nonzero(apart).flatten() + 1).tolist(), len(factor)]
    groups = (factor[a:b] for a, b in zip(edges, edges[1:]))
    return torch.cat([_echelon(rows) if len(rows) > 1 else rows for rows in groups])


def _echelon(rows: Tensor) -> Tensor:
    """Rows with the same ``R^T R`` [D, D], found by pivoting on the longest column."""
    echelon = []
    for _ in range(len(rows)):
        sizes = rows.norm(dim=0)
        pivot = int((sizes >= 0.99 * sizes.max()).to(torch.uint8).argmax())
        direction = rows[:, pivot] / sizes[pivot]
        echelon.append(direction @ rows)
        rows = rows - torch.outer(direction, echelon[-1])
    return torch.stack(echelon)


@dataclass(frozen=True)
class Scatter:
    """A scatter as the sum of a matrix and of factors: ``dense + sum of block^T
    block``.

    The object keeps blocks until a matrix takes fewer numbers than all blocks.

    Attributes
    ----------
    dim : int
    dense : Tensor of shape (D, D), float64, or None
    blocks : tuple of Tensor of shape (r_i, D), float64
    canonical : bool
        Whether the scatter is one block that `thin_factor` made.
    """

    dim: int
    dense: Tensor | None = None
    blocks: tuple[Tensor, ...] = ()
    canonical: bool = False

    @classmethod
    def zero(cls, dim: int) -> Scatter:
        return cls.from_factor(torch.zeros(0, dim, dtype=torch.float64))

    @classmethod
    def from_centred(cls, centred: Tensor) -> Scatter:
        """The scatter of centred rows of shape (n, D), whose rank is at most n - 1."""
        n, dim = centred.shape
        if n - 1 <= _largest_rank(dim):
            # Rounding may find n directions of n centred rows with unlike weights.
            return cls(dim, None, (thin_factor(centred)[: n - 1],), canonical=True)
        return cls.from_dense(centred.T @ centred)

    @classmethod
    def from_factor(cls, factor: Tensor) -> Scatter:
        return cls(factor.shape[1], None, (factor,))

    @classmethod
    def from_dense(cls, scatter: Tensor) -> Scatter:
        return cls(scatter.shape[0], (scatter + scatter.T) / 2)

    @property
    def pending(self) -> int:
        return sum(block.shape[0] for block in self.blocks)

    @property
    def factor_is_smaller(self) -> bool:
        return self.dense is None and self.pending <= _largest_rank(self.dim)

    def matrix(self) -> Tensor:
        """The scatter as a matrix of shape (D, D)."""
        if self.dense is not None and not self.blocks:
            return self.dense.clone()
        rows = torch.cat(self.blocks)
        return rows.T @ rows if self.dense is None else self.dense + rows.T @ rows

    def rows(self) -> Tensor | None:
        """Rows R of shape (r, D) with ``R^T R`` equal to the scatter; None if it is
        dense."""
        if self.dense is not None:
            return None
        return torch.cat(self.blocks) if len(self.blocks) > 1 else self.blocks[0]

    def trace(self) -> float:
        """The trace of the scatter."""
        held = sum(float(block.square().sum()) for block in self.blocks)
        return held if self.dense is None else held + float(self.dense.trace())

    def diagonal(self) -> Tensor:
        """The diagonal of the scatter: Tensor of shape (D,)."""
        held = sum(
            (block.square().sum(dim=0) for block in self.blocks),
            torch.zeros(self.dim, dtype=torch.float64),
        )
        return held if self.dense is None else held + self.dense.diagonal()

    def mapped(self, linear: Callable[[Tensor], Tensor]) -> Scatter:
        """The scatter of mapped rows: ``T S T^T`` for this scatter S.

        `linear` maps rows r to ``T r``.
        """
        dense = None if self.dense is None else linear(linear(self.dense).T)
        return Scatter(self.dim, dense, tuple(map(linear, self.blocks)))

    def factor(self) -> Tensor:
        """The canonical thin factor of the scatter: Tensor of shape (rank, D)."""
        if self.canonical:
            return self.blocks[0]
        rows = self.rows()
        if rows is not None:
            return thin_factor(rows)
        values, vectors = torch.linalg.eigh(self.matrix())
        floor = values[-1] * self.dim * torch.finfo(values.dtype).eps
        keep = values > floor.clamp(min=0)
        factor = values[keep].sqrt()[:, None] * vectors.T[keep]
        return canonical_signs(_settle_ties(factor.flip(0)))

    def plus(self, other: Scatter, between: Tensor) -> Scatter:
        """Add `other` and ``B^T B`` to this scatter. B is `between`, [D] or [r, D]."""
        dense = self.dense if other.dense is None else other.dense
        if self.dense is not None and other.dense is not None:
            dense = self.dense + other.dense
        between = torch.atleast_2d(between)
        between = between[between.any(dim=1)]
        extra = (between,) if len(between) else ()
        merged = Scatter(self.dim, dense, self.blocks + other.blocks + extra)
        if merged.pending <= _largest_rank(self.dim):
            return merged
        return Scatter(self.dim, merged.matrix())

    def minus(self, other: Scatter, between: Tensor) -> Scatter:
        """Remove `other` and ``B^T B``. B is `between`, [D] or [r, D]."""
        # This needs matrices, because a factor cannot express a difference.
        between = torch.atleast_2d(between)
        left = self.matrix() - other.matrix() - between.T @ between
        return Scatter.from_dense(left)


def _largest_rank(dim: int) -> int:
    """The largest rank at which a factor has no more numbers than a triangle."""
    return (dim + 1) // 2


def moments(
    rows: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor, Scatter]:
    """Mean and scatter of rows [n, D] with positive weights [n], both float64.

    The mean comes as two tensors, a high and a low part. By default all weights are 1.
    """
    # Differences from a row are exact if rows are close, and zero if they are equal.
    offset = rows[0]
    centred = rows - offset
    shift = _mean(centred, weights)
    centred = centred - shift
    residue = _mean(centred, weights)
    centred -= residue
    if weights is not None:
        centred *= weights.sqrt()[:, None]
    high, low = add_to_mean(offset, torch.zeros_like(offset), shift + residue)
    return high, low, Scatter.from_centred(centred)


def _mean(rows: Tensor, weights: Tensor | None) -> Tensor:
    return rows.mean(dim=0) if weights is None else weights @ rows / weights.sum()


def add_to_mean(high: Tensor, low: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """Add `step` to a mean that has a high and a low part; return the new parts.

    This is Knuth's two-sum, renormalised.
    """
    total = high + step
    back = total - high
    error = (high - (total - back)) + (step - back) + low
    new_high = total + error
    return new_high, error - (new_high - total)


@dataclass(frozen=True)
class Means:
    """Counts and means of `C` classes. Each mean is the sum of a high and a low part.

    Attributes
    ----------
    counts : Tensor of shape (C,), int64
    high, low : Tensor of shape (C, D), float64
        Zero for a class without samples. The parts are never added up, so that no digit
        of the low part is lost.
    sums : Tensor of shape (C,), float64, or None
        The sums of the samples' weights; None if each sample has the weight 1.
    """

    counts: Tensor
    high: Tensor
    low: Tensor
    sums: Tensor | None = None

    @classmethod
    def rounded(
        cls, counts: Tensor, means: Tensor, sums: Tensor | None = None
    ) -> Means:
        """Make means from counts [C] and means [C, D] of any type."""
        counts = counts.to(torch.int64).clone()
        high = means.to(torch.float64).clone()
        high[counts == 0] = 0
        return cls(counts, high, torch.zeros_like(high), sums)

    @property
    def weights(self) -> Tensor:
        """The sums of the samples' weights, or the counts: shape (C,), float64."""
        return self.counts.double() if self.sums is None else self.sums

    def mapped(self, centre: Tensor, linear: Callable[[Tensor], Tensor]) -> Means:
        """The means of the rows ``T (x - centre)``. `linear` maps rows r to ``T r``."""
        moved = linear((self.high - centre) + self.low)
        return Means.rounded(self.counts, moved, self.sums)

    def plus(self, other: Means) -> tuple[Means, Tensor]:
        """Merge two sets of means; also return vectors [C, D] between the sets.

        The merged scatter of class c is the sum of its two scatters and ``b b^T``,
        where b is row c of these vectors.
        """
        self._require_alike(other)
        counts, sums = self.counts + other.counts, None
        if self.sums is not None or other.sums is not None:
            sums = self.weights + other.weights
        weights = counts.double() if sums is None else sums
        fraction = other.weights / weights.masked_fill(counts == 0, 1)
        only_other = self.counts == 0
        # The weight multiplies delta and not the means, because delta is small even if
        # means are large.
        delta = (other.high - self.high) + (other.low - self.low)
        delta[only_other | (other.counts == 0)] = 0
        high, low = add_to_mean(self.high, self.low, fraction[:, None] * delta)
        high = torch.where(only_other[:, None], other.high, high)
        low = torch.where(only_other[:, None], other.low, low)
        between = (self.weights * fraction).sqrt()[:, None] * delta
        return Means(counts, high, low, sums), between

    def minus(self, other: Means) -> tuple[Means, Tensor]:
        """Remove `other`; return the means that are left, and vectors as in `plus`."""
        self._require_alike(other)
        counts = self.counts - other.counts
        if (counts < 0).any():
            c = int(torch.nonzero(counts < 0)[0])
            raise StatisticsError(
                f"cannot remove {int(other.counts[c])} samples of class {c} from "
                f"{int(self.counts[c])}; remove only samples that were added"
            )
        gone = counts == 0
        sums = None
        if self.sums is not None or other.sums is not None:
            sums = (self.weights - other.weights).masked_fill(gone, 0)
        weights = counts.double() if sums is None else sums
        ratio = other.weights / weights.masked_fill(gone, 1)
        delta = (self.high - other.high) + (self.low - other.low)
        delta[gone | (other.counts == 0)] = 0
        high, low = add_to_mean(self.high, self.low, ratio[:, None] * delta)
        between = (self.weights * ratio).sqrt()[:, None] * delta
        none = gone[:, None]
        left = Means(counts, high.masked_fill(none, 0), low.masked_fill(none, 0), sums)
        return left, between

    def _require_alike(self, other: Means) -> None:
        if self.high.shape != other.high.shape:
            mine, theirs = tuple(self.high.shape), tuple(other.high.shape)
            raise StatisticsError(
                f"statistics of {mine[0]} classes in {mine[1]} dimensions do not fit "
                f"those of {theirs[0]} classes in {theirs[1]} dimensions"
            )


#: The types that rows may be stored in, by name.
ROW_DTYPES = {"float32": torch.float32, "float16": torch.float16, "int8": torch.int8}
#: In int8 the largest entry of a row becomes this number.
_LARGEST = 127.0


@dataclass(frozen=True)
class RoundedRows:
    """Rows in few bits. Row i is ``scales[i] * numbers[i]``.

    Attributes
    ----------
    numbers : Tensor of shape (r, D), one of `ROW_DTYPES`
    scales : Tensor of shape (r,), float64
        Not negative. Each scale restores the length that its row had before rounding.
        So the trace of ``R^T R``, the sum of squares of all entries, stays the same.

    Notes
    -----
    In floating point the largest entry of a row becomes 1, so rows of any size fit. In
    int8 the largest entry becomes 127, or less if `of` is given a coarser step. The
    error of an int8 entry is at most half a step. The relative error of a
    floating-point entry is at most 2^-11 (float16) or 2^-24 (float32). Restoring the
    length changes entries too, but only in second order.
    """

    numbers: Tensor
    scales: Tensor

    @classmethod
    def of(cls, rows: Tensor, dtype: str, step: float = 0.0) -> RoundedRows:
        """Round rows of shape (r, D), float64, to `dtype`, one of `ROW_DTYPES`.

        In int8 the steps between numbers are at least `step`. A row with few steps
        takes few bits once it is packed. A row that rounds to zero stays zero, whatever
        its length was.
        """
        kind = ROW_DTYPES[dtype]
        peaks = rows.abs().amax(dim=1)
        # Divided by their peaks, rows have lengths that neither under- nor overflow.
        unit = rows / torch.where(peaks > 0, peaks, torch.ones_like(peaks))[:, None]
        numbers = unit
        if kind is torch.int8:
            levels = peaks.new_full(peaks.shape, _LARGEST)
            if step > 0:
                levels = levels.minimum(peaks / step)
            numbers = (unit * levels[:, None]).round()
        numbers = numbers.to(kind)
        lengths = numbers.double().norm(dim=1)
        scales = peaks * (unit.norm(dim=1) / lengths.clamp(min=1))
        return cls(numbers, torch.where(lengths > 0, scales, 0 * scales))

    def rows(self) -> Tensor:
        """The rounded rows as floats: Tensor of shape (r, D), float64."""
        return self.numbers.double() * self.scales[:, None]
