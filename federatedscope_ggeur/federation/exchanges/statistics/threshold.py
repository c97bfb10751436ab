"""The min-count threshold: a class with too few rows stays out of statistics."""

from __future__ import annotations

from dataclasses import dataclass

from federatedscope_ggeur.geometry import Statistics


@dataclass(frozen=True)
class StatisticsSettings:
    """How statistics are changed before they travel.

    Attributes
    ----------
    float32_means : bool
        Whether means are rounded to float32.
    """

    float32_means: bool = False


def apply_min_count(statistics: Statistics, min_samples: int) -> Statistics:
    """Leave out the classes with fewer than `min_samples` samples.

    Such a class leaves no trace in the statistics, not even its count. So the mean of a
    single row, which is the row itself, is never sent (if `min_samples` is at least 2).

    The threshold does not limit what the statistics of other classes reveal; see
    docs/privacy.md. Up to 4 rows of a class can be reconstructed from its mean and
    covariance. If rows are non-negative, as after a ReLU, all of 5 rows and many of 20
    can be reconstructed. One upload shows without error whether a known row belongs to
    a class. Clients also train on withheld rows, so updates of a client's head depend
    on these rows, and the client's aggregation weight counts them.
    """
    kept = [c for c in statistics.classes if statistics.counts[c] >= min_samples]
    return statistics.restrict(kept)


def coarse_means(statistics: Statistics) -> Statistics:
    """Round the means of statistics to float32.

    Then the difference of two means, with and without a row, reveals this row only to
    1e-7 of its length.
    """
    return statistics.with_means(statistics.means.float().double())
