"""Mean and scatter of one class's rows; means with twice the precision of float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError

from .scatter import Scatter


def moments(rows: Tensor) -> tuple[Tensor, Tensor, Scatter]:
    """Mean and scatter of rows [n, D], float64.

    The mean comes as two tensors, a high and a low part.
    """
    # Differences from a row are exact if rows are close, and zero if they are equal.
    offset = rows[0]
    centred = rows - offset
    shift = centred.mean(dim=0)
    centred = centred - shift
    residue = centred.mean(dim=0)
    centred -= residue
    high, low = add_to_mean(offset, torch.zeros_like(offset), shift + residue)
    return high, low, Scatter.from_centred(centred)


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
    """

    counts: Tensor
    high: Tensor
    low: Tensor

    @classmethod
    def rounded(cls, counts: Tensor, means: Tensor) -> Means:
        """Make means from counts [C] and means [C, D] of any type."""
        counts = counts.to(torch.int64).clone()
        high = means.to(torch.float64).clone()
        high[counts == 0] = 0
        return cls(counts, high, torch.zeros_like(high))

    def mapped(self, centre: Tensor, linear: Callable[[Tensor], Tensor]) -> Means:
        """The means of the rows ``T (x - centre)``. `linear` maps rows r to ``T r``."""
        return Means.rounded(self.counts, linear((self.high - centre) + self.low))

    def plus(self, other: Means) -> tuple[Means, Tensor]:
        """Merge two sets of means; also return vectors [C, D] between the sets.

        The merged scatter of class c is the sum of its two scatters and ``b b^T``,
        where b is row c of these vectors.
        """
        self._require_alike(other)
        counts = self.counts + other.counts
        fraction = other.counts.double() / counts.clamp(min=1)
        only_other = self.counts == 0
        # The weight multiplies delta and not the means, because delta is small even if
        # means are large.
        delta = (other.high - self.high) + (other.low - self.low)
        delta[only_other | (other.counts == 0)] = 0
        high, low = add_to_mean(self.high, self.low, fraction[:, None] * delta)
        high = torch.where(only_other[:, None], other.high, high)
        low = torch.where(only_other[:, None], other.low, low)
        between = (self.counts * fraction).sqrt()[:, None] * delta
        return Means(counts, high, low), between

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
        ratio = other.counts.double() / counts.clamp(min=1)
        delta = (self.high - other.high) + (self.low - other.low)
        delta[(counts == 0) | (other.counts == 0)] = 0
        high, low = add_to_mean(self.high, self.low, ratio[:, None] * delta)
        between = (self.counts * ratio).sqrt()[:, None] * delta
        gone = (counts == 0)[:, None]
        left = Means(counts, high.masked_fill(gone, 0), low.masked_fill(gone, 0))
        return left, between

    def _require_alike(self, other: Means) -> None:
        if self.high.shape != other.high.shape:
            mine, theirs = tuple(self.high.shape), tuple(other.high.shape)
            raise StatisticsError(
                f"statistics of {mine[0]} classes in {mine[1]} dimensions do not fit "
                f"those of {theirs[0]} classes in {theirs[1]} dimensions"
            )
