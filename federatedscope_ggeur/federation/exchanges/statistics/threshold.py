"""The min-count threshold: of what a client holds too little of it says nothing."""

from __future__ import annotations

from dataclasses import dataclass

from federatedscope_ggeur.geometry import ClassStatistics


@dataclass(frozen=True)
class StatisticsSettings:
    """What is done to statistics before they travel.

    Attributes
    ----------
    float32_means : bool
        Means are rounded to float32.
    """

    float32_means: bool = False


def apply_min_count(statistics: ClassStatistics, min_samples: int) -> ClassStatistics:
    """`statistics` without the classes of fewer than `min_samples` samples.

    What it does: a class of fewer rows leaves no trace in the statistics, not even its
    count; a mean of one row, which is the row, is never sent.

    What it does not do, see docs/privacy.md and the attacks of `audit`: it is no bound
    on what the statistics of the other classes say. The rows of a class are solved for
    from its mean and covariance where they are up to 4 or, as after a ReLU, not
    negative: all of 5, and many of 20. Whether a known row is among those of a class
    is told by one upload without error. Withheld rows are trained on, and show in the
    updates of a client's head; their number shows in what the client counts for.
    """
    kept = [c for c in statistics.classes if statistics.counts[c] >= min_samples]
    return statistics.restrict(kept)


def coarse_means(statistics: ClassStatistics) -> ClassStatistics:
    """The same with means rounded to float32: less one row or more, they differ by that
    row to 1e-7 of its length only."""
    return statistics.with_means(statistics.means.float().double())
