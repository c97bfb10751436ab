"""Measures how well a head's probabilities agree with its hits, in counts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from federatedscope_ggeur.models import Model
from federatedscope_ggeur.reporting import ProbabilityScores

#: Bins of equal width for the largest probability of a row.
BINS = 15
#: Sums are sent as whole multiples of 1/64: exact ones would reveal single rows.
_UNITS = 64
_LARGEST = 2.0**50


@dataclass(frozen=True, eq=False)
class Reliability:
    """Counts over some rows: hits and confidences by bin, Brier scores, log-losses.

    Attributes
    ----------
    bins : Tensor of shape (3, BINS), int64
        For each bin: the rows whose largest probability lies in the bin, how many of
        them are classified correctly, and the sum of these probabilities in 1/64.
    sums : Tensor of shape (2,), int64
        The sums of Brier scores and log-losses, in 1/64.
    """

    bins: Tensor
    sums: Tensor

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor) -> Reliability:
        """Count over rows with logits [n, C], float64, and labels [n]."""
        shares = Model.probabilities(logits)
        largest, found = shares.max(dim=1)
        place = (largest * BINS).ceil().long().clamp(1, BINS) - 1
        rows = torch.bincount(place, minlength=BINS)
        hits = torch.bincount(place[found == labels], minlength=BINS)
        sure = torch.zeros(BINS, dtype=torch.float64).index_add(0, place, largest)
        errors = shares - F.one_hot(labels, logits.shape[1])
        loss = F.nll_loss(shares.log(), labels, reduction="sum")
        sums = torch.stack([errors.square().sum(), loss.clamp(max=_LARGEST)])
        bins = torch.stack([rows, hits, _rounded(sure)])
        return cls(bins, _rounded(sums))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Reliability):
            return NotImplemented
        return self.bins.equal(other.bins) and self.sums.equal(other.sums)

    def __add__(self, other: Reliability) -> Reliability:
        return Reliability(self.bins + other.bins, self.sums + other.sums)

    @property
    def rows(self) -> int:
        """The number of counted rows."""
        return int(self.bins[0].sum())

    @property
    def hits(self) -> int:
        """The number of these rows that are classified correctly."""
        return int(self.bins[1].sum())

    def scores(self) -> ProbabilityScores | None:
        """Expected calibration error, log-loss and Brier score; None without rows.

        The calibration error is the mean, over rows, of the distance between the
        accuracy of a row's bin and the mean confidence of the bin (Guo et al., "On
        calibration of modern neural networks", 2017).
        """
        if not self.rows:
            return None
        _, hits, sure = self.bins.double()
        apart = (hits - sure / _UNITS).abs().sum()
        brier, loss = (self.sums.double() / _UNITS / self.rows).tolist()
        return ProbabilityScores(float(apart / self.rows), loss, brier)


def _rounded(sums: Tensor) -> Tensor:
    return (sums * _UNITS).round().long()
