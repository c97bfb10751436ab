"""Spaces: the coordinates ``x' = T (x - m)`` in which a model is trained.

This is feature normalisation. Lengths of embeddings differ by factors of a hundred, and
the learning rates that suit them differ even more. If the rows themselves give the
centre and the scale of the space, one rate suits all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError, setting

from .statistics import Statistics, Totals, varying

SPACES = ("standard", "raw")

#: Root mean square length of the rows in a space that is not raw. The cross-entropy of
#: a row x has a curvature of at most |x|^2 / 2 along x. So a gradient step of rate r
#: does not overshoot if |x|^2 <= 4 / r. FederatedScope's default rate 0.1 gives 40.
LENGTH = 40**0.5

#: Rows count as equal if they differ by less than this share of their distance from
#: the origin. Such a difference is rounding: float32 resolves shares of 6e-8.
_ROUNDING = 1e-10

#: The standard space gives each dimension its own scale if the geometric standard
#: deviation of the dimensions' variances is above this number. We measured it:
#: CLIP features 1.7; MobileNet features 1.6 to 2.9; simulated histograms 5 to 24 (own
#: scales would cost 12 to 1 points of accuracy); pixels 15 (would cost 0.4); units
#: three orders of magnitude apart 38 (own scales gain 27 points); measurements of
#: wines 50 (gain 22) and of cells 900 (gain 5).
UNITS_APART = 30.0

_CHUNK_ROWS = 4096


@dataclass(frozen=True)
class Space:
    """Coordinates ``x' = T (x - m)``. T is diagonal.

    Attributes
    ----------
    kind : {"standard", "raw"}
    centre : Tensor of shape (D,), float64
        The centre m.
    scale : float
        Without `scales`, T is this multiple of the identity.
    scales : Tensor of shape (D,), float64, or None
        The diagonal of T. All entries are positive.
    """

    kind: str
    centre: Tensor
    scale: float = 1.0
    scales: Tensor | None = None

    @classmethod
    @cache
    def raw(cls, dim: int) -> Space:
        """The raw space, whose transform changes nothing."""
        return cls("raw", torch.zeros(dim, dtype=torch.float64))

    @classmethod
    def standard(cls, totals: Totals) -> Space:
        """The standard space ``x' = LENGTH (x - m) / s``, made from totals of all rows.

        m is the mean of all rows, and s^2 is the mean of ``|x - m|^2``. If all rows are
        equal, s is 1.

        If the dimensions differ by more than `UNITS_APART`, each dimension d is divided
        by its own standard deviation: ``x'_d = LENGTH D^(-1/2) (x_d - m_d) / s_d``.
        Constant dimensions do not count in D, and are scaled by s.

        Raises
        ------
        StatisticsError
            There are no rows.
        """
        _require_rows(totals)
        square = totals.spread / totals.count
        rounding = _ROUNDING**2 * float(totals.mean.square().sum())
        distance = square**0.5 if square > rounding else 1.0
        scale = LENGTH / distance
        return cls("standard", totals.mean, scale, scales=_scales(totals, scale))

    @property
    def dim(self) -> int:
        return len(self.centre)

    @property
    def is_raw(self) -> bool:
        return self.kind == "raw"

    def report(self) -> dict[str, float | str] | None:
        """The space as plain values for results; None for the raw space.

        `kind` is always there. A standard space also gives `distance`, the distance s
        of rows from the centre, and `scales`: "one" for all dimensions, or one for
        "each".
        """
        if self.is_raw:
            return None
        scales = "one" if self.scales is None else "each"
        return {"kind": self.kind, "distance": LENGTH / self.scale, "scales": scales}

    def linear(self, rows: Tensor) -> Tensor:
        """Map each row r of shape (n, D) to ``T r``, in float64."""
        return rows * (self.scale if self.scales is None else self.scales)

    def inverse_linear(self, rows: Tensor) -> Tensor:
        """Map each row r of shape (n, D) to ``T^-1 r``, in float64."""
        return rows / (self.scale if self.scales is None else self.scales)

    def features(self, rows: Tensor) -> Tensor:
        """Transform embeddings of shape (n, D) into this space. Their dtype stays."""
        if self.is_raw:
            return rows
        # In parts, because the difference needs float64: float32 would round it.
        parts = (
            self.linear(part.to(torch.float64) - self.centre).to(rows.dtype)
            for part in rows.split(_CHUNK_ROWS)
        )
        return torch.cat(list(parts)) if len(rows) else rows

    def statistics(self, statistics: Statistics) -> Statistics:
        """Transform statistics of embeddings into those of the embeddings in this
        space."""
        if self.is_raw:
            return statistics
        return statistics.mapped(self.centre, self.linear)


def _scales(totals: Totals, scale: float) -> Tensor | None:
    """The scales of the dimensions [D]; None if the dimensions need no scales.

    The dimensions need scales if they differ by more than a factor of `UNITS_APART`.
    Constant dimensions get `scale`.
    """
    variances = totals.squares / totals.count
    varied = varying(variances, totals.mean)
    logs = variances[varied].log()
    if len(logs) < 2 or float(logs.std(unbiased=False).exp()) <= UNITS_APART:
        return None
    own = LENGTH / (variances * len(logs)).sqrt()
    return torch.where(varied, own, torch.full_like(own, scale))


def _require_rows(totals: Totals) -> None:
    if not totals.count:
        raise StatisticsError(
            "no space can be made, because no client sent totals of its rows; lower "
            f"{setting('min_samples')}, or set {setting('space')} to raw"
        )
