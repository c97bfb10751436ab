"""The min-count threshold: a class with too few rows stays out of statistics."""

from __future__ import annotations

from dataclasses import dataclass

from federatedscope_ggeur.geometry import ClassStatistics


@dataclass(frozen=True)
class StatisticsSettings:
    """What is done to statistics before they travel.

    Attributes
    ----------
    float32_means : bool
        Whether means are rounded to float32.
    """

    float32_means: bool = False


def apply_min_count(statistics: ClassStatistics, min_samples: int) -> ClassStatistics:
    """`statistics` without the classes of fewer than `min_samples` samples.

    What it does: such a class leaves no trace in the statistics, not even its count. A
    mean of one row, which is the row itself, is never sent.

    What it does not do (docs/privacy.md and the attacks of `audit`): it does not limit
    what the statistics of other classes reveal. From the mean and covariance of a class
    up to 4 rows can be reconstructed. Of non-negative rows, as after a ReLU, all of 5
    can, and many of 20. One upload tells without error whether a known row belongs to a
    class. Withheld rows are trained on, so they show in the updates of a client's head.
    Their number shows in the client's aggregation weight.
    """
    kept = [c for c in statistics.classes if statistics.counts[c] >= min_samples]
    return statistics.restrict(kept)


def coarse_means(statistics: ClassStatistics) -> ClassStatistics:
    """The statistics with means rounded to float32.

    Then means with and without a row reveal that row only to 1e-7 of its length.
    """
    return statistics.with_means(statistics.means.float().double())
