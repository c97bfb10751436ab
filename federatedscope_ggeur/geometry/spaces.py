"""Spaces: the coordinates ``x' = T (x - m)`` that a model is trained in.

Embeddings differ by factors of a hundred in their lengths, and more in the rates that
suit them. In a space that is centred and scaled by the rows themselves one rate suits
all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError, setting
from federatedscope_ggeur.geometry.statistics import ClassStatistics
from federatedscope_ggeur.geometry.summed import SummedStatistics
from federatedscope_ggeur.geometry.totals import Totals

SPACES = ("standard", "raw", "whitened")

#: Standard deviation of a coordinate. Gradient descent on rows that are LENGTH times as
#: long is one with LENGTH^2 times the rate: FederatedScope's default of 0.1 does here
#: what 0.01, a usual rate, does on rows of variance 1.
LENGTH = 0.1**0.5

#: Rows closer together than this share of their distance from the origin are the same
#: up to rounding; float32 tells rows apart from 6e-8 on.
_ROUNDING = 1e-10

_CHUNK_ROWS = 4096


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
        """``x' = LENGTH (x - m) / s``, with m the mean of all rows and s^2 their mean
        variance over the D dimensions; ``s = 1`` where all rows are the same.

        Raises
        ------
        StatisticsError
            There are no rows.
        """
        _require_rows(totals)
        variance = totals.spread / totals.count / len(totals.mean)
        rounding = _ROUNDING**2 * float(totals.mean.square().mean())
        deviation = variance**0.5 if variance > rounding else 1.0
        return cls("standard", totals.mean, LENGTH / deviation)

    @classmethod
    def whitened(
        cls,
        totals: Totals,
        statistics: Union[ClassStatistics, SummedStatistics],
        shrinkage: float,
    ) -> Space:
        """``x' = LENGTH A^(-1/2) (x - m)`` with ``A = (1-g) W + g tr(W)/D I``.

        W is the within-class scatter over N - C for N rows of C classes: rows of a
        class become equally wide in all directions, up to the shrinkage g.

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
        freedom = int(summed.counts.sum()) - len(summed.classes)
        size = summed.trace() / max(freedom, 1) / summed.dim
        if not size > 0:
            raise StatisticsError(
                "there is no whitened space: no class that statistics were sent of has "
                f"two rows that differ; lower {setting('min_samples')}, or set "
                f"{setting('space')} to standard"
            )
        values, vectors = torch.linalg.eigh(summed.scatter() / freedom)
        widths = (1 - shrinkage) * values.clamp(min=0) + shrinkage * size
        matrix = LENGTH * (vectors * widths.rsqrt()) @ vectors.T
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
        """What it is, as plain values; None for raw embeddings."""
        if self.is_raw:
            return None
        if self.matrix is not None:
            return {"kind": self.kind}
        return {"kind": self.kind, "deviation": LENGTH / self.scale}

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

    def statistics(self, statistics: ClassStatistics) -> ClassStatistics:
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
        self, totals: Totals, statistics: Union[ClassStatistics, SummedStatistics]
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
        return Space.whitened(totals, statistics, self.shrinkage)


def _require_rows(totals: Totals) -> None:
    if not totals.count:
        raise StatisticsError(
            "there is no space of no rows: no client sent how its rows lie; lower "
            f"{setting('min_samples')}, or set {setting('space')} to raw"
        )
