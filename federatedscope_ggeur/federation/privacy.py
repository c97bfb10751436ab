"""The min-count threshold: of what a client holds too little of it says nothing."""

from __future__ import annotations

from torch import Tensor

from federatedscope_ggeur.geometry import ClassStatistics


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


def rows_for_totals(
    labels: Tensor, counts: Tensor, min_samples: int, after_statistics: bool
) -> Tensor:
    """Which rows the totals of a client may be of: a mask of shape (n,), bool.

    Of its withheld rows, those of classes that it has fewer than `min_samples` of, they
    are all in or, where they are fewer than `min_samples` themselves, none: totals of
    all rows, less sums over those of the other classes, which statistics and some
    methods send, are sums over the withheld ones. Where statistics are sent as well the
    others are in these, and no second total is made of them.

    Parameters
    ----------
    labels : Tensor of shape (n,), int64
    counts : Tensor of shape (C,), int64
        The client's rows of each class.
    min_samples : int
    after_statistics : bool
        Whether class statistics are sent in round 0.
    """
    withheld = (counts < min_samples)[labels]
    told = withheld.new_full(labels.shape, not after_statistics) & ~withheld
    return told | withheld if int(withheld.sum()) >= min_samples else told
