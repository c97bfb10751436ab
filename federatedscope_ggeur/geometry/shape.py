"""The geometric shape of a distribution: eigenvalues and eigenvectors of its
covariance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError

from .scatter import canonical_signs
from .statistics import Statistics

SCALES = ("covariance", "eigenvalue")


@dataclass(frozen=True)
class GeometricShape:
    """Eigenvalues and eigenvectors of a covariance (Eq. 2), without the null space.

    Attributes
    ----------
    eigenvalues : Tensor of shape (r,)
        Descending, all positive. r is 0 if all rows of the class are equal.
    eigenvectors : Tensor of shape (D, r)
        Orthonormal columns. The largest entry of each column is positive.
    """

    eigenvalues: Tensor
    eigenvectors: Tensor

    @property
    def dim(self) -> int:
        return self.eigenvectors.shape[0]

    @property
    def rank(self) -> int:
        return self.eigenvectors.shape[1]

    @classmethod
    def from_covariance(
        cls, covariance: Tensor, resolution: float | None = None
    ) -> GeometricShape:
        """The shape of a symmetric positive semi-definite matrix of shape (D, D).

        Eigenvalues up to `resolution` times the largest count as rounding noise and are
        left out. The default `resolution` is D times the precision of the matrix's
        type.
        """
        if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1]:
            raise StatisticsError(
                f"a covariance must be square, got shape {tuple(covariance.shape)}"
            )
        values, vectors = torch.linalg.eigh(covariance)
        values, vectors = _clip(values, vectors, covariance.shape[0], resolution)
        return cls(values, canonical_signs(vectors.T).T)

    @classmethod
    def from_factors(cls, factors: Sequence[Tensor], count: int) -> GeometricShape:
        """The shape of ``Sigma = (1/count) sum_i F_i^T F_i``.

        Parameters
        ----------
        factors : sequence of Tensor of shape (r_i, D)
        count : int
            Number of samples that the factors were made from.

        Notes
        -----
        With fewer rows than dimensions, the Gram matrix ``F F^T`` of the stacked rows
        is decomposed instead. It has the same eigenvalues. For its eigenvectors u, the
        eigenvectors of Sigma lie along ``F^T u``. QR gives them length 1, because
        dividing by sqrt(lambda) would be inexact if lambda is nearly zero.
        """
        rows = torch.cat(list(factors))
        if rows.shape[0] >= rows.shape[1]:
            return cls.from_covariance(rows.T @ rows / count)
        values, vectors = torch.linalg.eigh(rows @ rows.T / count)
        values, vectors = _clip(values, vectors, rows.shape[1])
        directions, _ = torch.linalg.qr(rows.T @ vectors)
        return cls(values, canonical_signs(directions.T).T)

    @classmethod
    def from_statistics(
        cls, statistics: Statistics, c: int, resolution: float | None = None
    ) -> GeometricShape:
        """The shape of class `c`, computed from rows or a covariance, whichever is
        cheaper.

        `resolution` is for covariances that were rounded, see `from_covariance`.
        """
        rows = statistics.stacked_rows(c)
        if rows is None:
            return cls.from_covariance(statistics.covariance(c), resolution)
        return cls.from_factors([rows], int(statistics.counts[c]))

    @classmethod
    def pooled(
        cls, statistics: Statistics, resolution: float | None = None
    ) -> GeometricShape:
        """The shape of ``sum_c n_c Sigma_c / N``, the pooled covariance within classes.

        Raises
        ------
        StatisticsError
            There are no samples.
        """
        total = int(statistics.counts.sum())
        if not total:
            raise StatisticsError(
                "there are no samples, so there is no covariance within classes"
            )
        rows = statistics.stacked_rows()
        if rows is None:
            return cls.from_covariance(statistics.scatter() / total, resolution)
        return cls.from_factors([rows], total)

    def basis(self, scale: str = "covariance") -> Tensor:
        """The scaled directions ``s_m xi_m`` as rows: Tensor of shape (r, D).

        Standard normal rows times this basis are the noise of Eq. 5. With
        ``"covariance"``, ``s = sqrt(lambda)``, and the noise has covariance Sigma. With
        ``"eigenvalue"``, ``s = lambda`` as in the paper's formula, and the noise has
        covariance Sigma^2.
        """
        return (self._lengths(scale)[:, None] * self.eigenvectors.T).contiguous()

    def scaled(self, scale: str = "covariance") -> tuple[Tensor, Tensor]:
        """The two factors of `basis`: lengths s of shape (r,) and directions of shape
        (D, r).

        Both are float32.
        """
        return self._lengths(scale).float(), self._directions

    @cached_property
    def _directions(self) -> Tensor:
        return self.eigenvectors.float()

    def _lengths(self, scale: str) -> Tensor:
        if scale not in SCALES:
            raise ValueError(f"scale must be one of {SCALES}, got {scale!r}")
        return self.eigenvalues.sqrt() if scale == "covariance" else self.eigenvalues


def shape_similarity(a: GeometricShape, b: GeometricShape, top: int = 5) -> float:
    """The similarity of two shapes: how well their leading directions agree (Eq. 3).

    It is ``sum_{i<=top} |<xi_i, xi'_i>|``.

    The similarity lies between 0 and `top`. A direction that one of the shapes lacks
    adds nothing.
    """
    if a.dim != b.dim:
        raise StatisticsError(f"shapes in {a.dim} and {b.dim} dimensions do not fit")
    top = min(top, a.rank, b.rank)
    products = (a.eigenvectors[:, :top] * b.eigenvectors[:, :top]).sum(dim=0)
    return float(products.abs().sum())


def _clip(
    values: Tensor, vectors: Tensor, dim: int, resolution: float | None = None
) -> tuple[Tensor, Tensor]:
    """Sort values and vectors in descending order, and drop those that are rounding
    noise."""
    if len(values) == 0:
        return values, vectors
    if resolution is None:
        resolution = dim * torch.finfo(values.dtype).eps
    rank = int((values > values[-1].clamp(min=0) * resolution).sum())
    return values.flip(0)[:rank], vectors.flip(1)[:, :rank]
