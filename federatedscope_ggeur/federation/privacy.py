"""The min-count threshold: of what a client holds too little of it says nothing."""

from __future__ import annotations

from federatedscope_ggeur.geometry import ClassStatistics


def apply_min_count(statistics: ClassStatistics, min_samples: int) -> ClassStatistics:
    """`statistics` without the classes of fewer than `min_samples` samples.

    A mean of one sample is the sample; of L2-normalised embeddings up to four can be
    solved for from their mean and covariance. A withheld class leaves no trace in the
    statistics, not even its count. The client's weight in averages still tells how many
    rows it trains on in all.
    """
    kept = [c for c in statistics.classes if statistics.counts[c] >= min_samples]
    return statistics.restrict(kept)
