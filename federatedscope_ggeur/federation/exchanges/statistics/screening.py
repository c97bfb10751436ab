"""Finds class statistics that are far larger than those of all other clients."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.screening import Findings
from federatedscope_ggeur.geometry import ClassStatistics, MeanStatistics

#: The largest usual ratio of a mean or a standard deviation to the others' rows.
LENGTH = 5.0
# the number of clients whose statistics are stored for comparison
_KEPT = 64


class Lengths:
    """Collects the norms of clients' class means and spreads over one run."""

    def __init__(self) -> None:
        self._lengths: deque[tuple[int, np.ndarray]] = deque(maxlen=_KEPT)

    def findings(self, uploads: Iterable[StatisticsUpload]) -> Findings:
        """Compare uploads with earlier uploads and with each other."""
        new = [(upload.client, _lengths(upload)) for upload in uploads]
        found: Findings = {}
        for k, (means, spreads) in new:
            others = [held for j, held in self._lengths if j != k]
            others += [np.hypot(*held) for j, held in new if j != k]
            reason = _too_long(means, spreads, others)
            if reason:
                found[k] = reason
        self._lengths.extend((k, np.hypot(*h)) for k, h in new if k not in found)
        return found


def _lengths(upload: StatisticsUpload) -> tuple[np.ndarray, np.ndarray]:
    """The norms of class means [C] and of class spreads [C]; NaN for missing classes.

    A spread is the standard deviation over all directions.
    """
    held = upload.statistics
    means = held.means.norm(dim=1).numpy()
    spreads = np.zeros_like(means)
    if isinstance(held, ClassStatistics):
        for c in held.classes:
            spreads[c] = (held.trace_of(c) / float(held.counts[c])) ** 0.5
    elif not isinstance(held, MeanStatistics) and held.classes:
        spreads[:] = (held.trace() / float(held.counts.sum())) ** 0.5
    absent = held.counts.numpy() == 0
    return np.where(absent, np.nan, means), np.where(absent, np.nan, spreads)


def _too_long(
    means: np.ndarray, spreads: np.ndarray, others: Sequence[np.ndarray]
) -> str:
    """A text about a class that is far larger than others' rows; "" if none is."""
    usual = [rows for rows in others if not np.isnan(rows).all()]
    if len(usual) < 2:
        return ""
    stacked = np.stack(usual)
    held = (~np.isnan(stacked)).sum(axis=0)
    overall = float(np.nanmedian([np.nanmedian(rows) for rows in stacked]))
    for c in np.flatnonzero(~np.isnan(means)):
        by_class = stacked[:, c][~np.isnan(stacked[:, c])]
        median = float(np.median(by_class)) if held[c] > 1 else overall
        limit = LENGTH * max(median, overall)
        for what, value in (("mean", means[c]), ("standard deviation", spreads[c])):
            if median > 0 and value > limit:
                return (
                    f"the {what} of its class {c} has the norm {value:.3g}, but the "
                    f"median norm of other clients' rows is {median:.3g}"
                )
    return ""
