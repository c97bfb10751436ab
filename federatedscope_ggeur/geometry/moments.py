"""Mean and scatter of one class's rows; means with twice the precision of float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError

from .scatter import Scatter


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
