"""A scatter, e.g. ``n Sigma`` of one class, stored as a matrix or as a factor.

The smaller of the two forms is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


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
    found = []
    for _ in range(len(rows)):
        sizes = rows.norm(dim=0)
        pivot = int((sizes >= 0.99 * sizes.max()).to(torch.uint8).argmax())
        direction = rows[:, pivot] / sizes[pivot]
        found.append(direction @ rows)
        rows = rows - torch.outer(direction, found[-1])
    return torch.stack(found)


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
