"""Counts and means of classes without any scatter, and their exact merge."""

from __future__ import annotations

import torch
from torch import Tensor

from .moments import Located, Means


class MeanStatistics(Located):
    """Counts and means of `C` classes, without scatters.

    They suffice for nearest class means. Objects are immutable; ``a + b`` and ``a - b``
    work as for `ClassStatistics`.

    Attributes
    ----------
    counts, means, classes
        As for `ClassStatistics`.
    """

    @classmethod
    def empty(cls, num_classes: int, dim: int) -> MeanStatistics:
        """The statistics of no rows at all. Adding them changes nothing."""
        return cls.from_moments(torch.zeros(num_classes), torch.zeros(num_classes, dim))

    @classmethod
    def of(cls, statistics: Located) -> MeanStatistics:
        """The counts and means of `statistics`, without any scatters."""
        return cls(statistics.located)

    @classmethod
    def from_moments(cls, counts: Tensor, means: Tensor) -> MeanStatistics:
        """Make statistics from counts [C] and means [C, D], e.g. of a message."""
        return cls(Means.rounded(counts, means))

    def __add__(self, other: MeanStatistics) -> MeanStatistics:
        if not isinstance(other, MeanStatistics):
            return NotImplemented
        return MeanStatistics(self.located.plus(other.located)[0])

    def __sub__(self, other: MeanStatistics) -> MeanStatistics:
        if not isinstance(other, MeanStatistics):
            return NotImplemented
        return MeanStatistics(self.located.minus(other.located)[0])
