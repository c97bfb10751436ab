"""Spaces: the coordinates ``x' = T (x - m)`` that a model is trained in.

Embeddings differ by factors of a hundred in their lengths, and more in the rates that
suit them. In a space that is centred and scaled by the rows themselves one rate suits
all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, Union

import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError, setting
from federatedscope_ggeur.geometry.mean_statistics import MeanStatistics
from federatedscope_ggeur.geometry.statistics import ClassStatistics
from federatedscope_ggeur.geometry.summed import SummedStatistics
from federatedscope_ggeur.geometry.totals import Totals

SPACES = ("standard", "raw", "whitened")

#: Root mean square length of the rows of a space that is not raw. The cross-entropy of
#: a row x has a curvature of at most |x|^2 / 2 along x, so that a gradient step of rate
#: r does not overshoot up to |x|^2 = 4 / r: 40 at FederatedScope's default rate of 0.1.
LENGTH = 40**0.5

#: Rows closer together than this share of their distance from the origin are the same
#: up to rounding; float32 tells rows apart from 6e-8 on.
_ROUNDING = 1e-10

_CHUNK_ROWS = 4096

WithScatter = TypeVar("WithScatter", ClassStatistics, SummedStatistics)


@dataclass(frozen=True)
class Space:
    """Coordinates ``x' = T (x - m)`` with T a multiple of the identity, or symmetric.

    Attributes
    ----------
    kind : {"standard", "raw", "whitened"}
    centre : Tensor of shape (D,), float64
        m.
    scale : float
        T, where there is no `matrix`.
    matrix : Tensor of shape (D, D), float64, or None
        T, symmetric and positive definite.
    """

    kind: str
    centre: Tensor
    scale: float = 1.0
    matrix: Tensor | None = None

    @classmethod
    def raw(cls, dim: int) -> Space:
        """Embeddings as they are: whatever is transformed comes back itself."""
        return cls("raw", torch.zeros(dim, dtype=torch.float64))

    @classmethod
    def standard(cls, totals: Totals) -> Space:
        """``x' = LENGTH (x - m) / s``, with m the mean of all rows and s^2 the mean of
        ``|x - m|^2``; ``s = 1`` where all rows are the same.

        Raises
        ------
        StatisticsError
            There are no rows.
        """
        _require_rows(totals)
        square = totals.spread / totals.count
        rounding = _ROUNDING**2 * float(totals.mean.square().sum())
        distance = square**0.5 if square > rounding else 1.0
        return cls("standard", totals.mean, LENGTH / distance)

    @classmethod
    def whitened(
        cls,
        totals: Totals,
        statistics: Union[ClassStatistics, SummedStatistics],
        shrinkage: float,
    ) -> Space:
        """``x' = LENGTH A^(-1/2) (x - m) / s`` with ``A = (1-g) W + g tr(W)/D I``.

        W is the within-class scatter over N - C for N rows of C classes: rows of a
        class become equally wide in all directions, up to the shrinkage g. s^2 is the
        mean of ``|A^(-1/2) (x - m)|^2`` over these rows and their own m.

        Parameters
        ----------
        totals : Totals
            Of all rows: m is their mean.
        statistics : ClassStatistics or SummedStatistics
            W is theirs.
        shrinkage : float
            g, above 0 and at most 1.

        Raises
        ------
        StatisticsError
            There are no rows, or no class has two rows that differ.
        """
        _require_rows(totals)
        summed = statistics
        if isinstance(summed, ClassStatistics):
            summed = SummedStatistics.from_classes(summed)
        own = Totals.of_statistics(summed)
        freedom = own.count - len(summed.classes)
        size = summed.trace() / max(freedom, 1) / summed.dim
        if not size > 0:
            raise StatisticsError(
                "there is no whitened space: no class that statistics were sent of has "
                f"two rows that differ; lower {setting('min_samples')}, or set "
                f"{setting('space')} to standard"
            )
        values, vectors = torch.linalg.eigh(summed.scatter() / freedom)
        values = values.clamp(min=0)
        inverse = 1 / ((1 - shrinkage) * values + shrinkage * size)
        offsets = (summed.means - own.mean) @ vectors
        between = summed.counts.double() @ offsets.square() / own.count
        within = values * (freedom / own.count)
        scale = LENGTH * float(inverse @ (within + between)) ** -0.5
        matrix = scale * (vectors * inverse.sqrt()) @ vectors.T
        # As it travels, so that both sides have the same one.
        matrix = ((matrix + matrix.T) / 2).float().double()
        return cls("whitened", totals.mean, matrix=matrix)

    @property
    def dim(self) -> int:
        return len(self.centre)

    @property
    def is_raw(self) -> bool:
        return self.kind == "raw"

    def report(self) -> dict[str, float | str] | None:
        """Its kind and, if it is standard, how far from the centre rows are (s), as
        plain values; None for raw embeddings."""
        if self.is_raw:
            return None
        distance = {} if self.matrix is not None else {"distance": LENGTH / self.scale}
        return {"kind": self.kind, **distance}

    def linear(self, rows: Tensor) -> Tensor:
        """``T r`` of each row r of shape (n, D), float64."""
        return rows * self.scale if self.matrix is None else rows @ self.matrix

    def inverse_linear(self, rows: Tensor) -> Tensor:
        """``T^-1 r`` of each row r of shape (n, D), float64."""
        if self.matrix is None:
            return rows / self.scale
        return torch.linalg.solve(self.matrix, rows.T).T

    def features(self, rows: Tensor) -> Tensor:
        """Embeddings of shape (n, D) in these coordinates, in their own type."""
        if self.is_raw:
            return rows
        # A part at a time: float64 is for the difference, which float32 would round.
        parts = (
            self.linear(part.to(torch.float64) - self.centre).to(rows.dtype)
            for part in rows.split(_CHUNK_ROWS)
        )
        return torch.cat(list(parts)) if len(rows) else rows

    def statistics(self, statistics: WithScatter) -> WithScatter:
        """The statistics of the transformed rows, from those of the rows."""
        if self.is_raw:
            return statistics
        return statistics.mapped(self.centre, self.linear)


@dataclass(frozen=True)
class SpaceSettings:
    """Which space a model is trained in.

    Attributes
    ----------
    kind : {"standard", "raw", "whitened"}
    shrinkage : float
        Of the whitened space, above 0 and at most 1.
    """

    kind: str = "raw"
    shrinkage: float = 0.3

    def make(
        self,
        totals: Totals,
        statistics: Union[ClassStatistics, SummedStatistics, MeanStatistics],
    ) -> Space:
        """The space of rows with these totals and, for the whitened one, statistics.

        Raises
        ------
        StatisticsError
            They do not suffice.
        """
        if self.kind == "raw":
            return Space.raw(len(totals.mean))
        if self.kind == "standard":
            return Space.standard(totals)
        if isinstance(statistics, MeanStatistics):
            raise StatisticsError(
                "a whitened space needs a covariance, and there are only means"
            )
        return Space.whitened(totals, statistics, self.shrinkage)

    def of_rows(self, features: Tensor, labels: Tensor, num_classes: int) -> Space:
        """The space of rows of shape (n, D) with labels of shape (n,); raw without
        rows, and the standard one where none of a class differ, so that it cannot be
        whitened."""
        if self.kind == "raw" or not len(features):
            return Space.raw(features.shape[1])
        totals = Totals.of_rows(features)
        if self.kind == "whitened":
            own = ClassStatistics.from_embeddings(features, labels, num_classes)
            if own.trace() > 0:
                return Space.whitened(totals, own, self.shrinkage)
        return Space.standard(totals)


def _require_rows(totals: Totals) -> None:
    if not totals.count:
        raise StatisticsError(
            "there is no space of no rows: no client sent how its rows lie; lower "
            f"{setting('min_samples')}, or set {setting('space')} to raw"
        )
