"""Finds class statistics that are far larger than those of all other clients."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np

from federatedscope_ggeur.federation.screening import Findings

from .upload import StatisticsUpload

#: The largest usual ratio of a mean or a standard deviation to the others' rows.
LENGTH = 5.0
# the number of clients whose statistics are stored for comparison
_KEPT = 64
#: Clients are compared if they share so many classes.
_SHARED = 3
#: Agreements of class means, from 0 to 1. Domains of PACS agree by 0.24 or more, and
#: rows with their columns reversed by 0.03 at most.
_AGREES, _AGREES_WITH_NOBODY = 0.2, 0.1


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


class Directions:
    """Collects clients' class means, to find a client whose rows are of another kind.

    Two clients are compared by the classes that they share. A direction is the
    difference of a class mean from the mean of these means. The mean cosine of the
    directions is near 0 if one client has its columns in another order, or another
    encoder. Domains differ less. The sign does not count: images may be inverted.
    """

    def __init__(self) -> None:
        self._means: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def add(self, upload: StatisticsUpload) -> None:
        if len(self._means) < _KEPT and len(upload.statistics.classes) >= _SHARED:
            held = upload.statistics
            there = held.counts.numpy() > 0
            self._means[upload.client] = there, held.means.numpy().astype(np.float32)

    def findings(self) -> Findings:
        """The clients that agree with nobody, if others agree with each other."""
        best: dict[int, float] = {}
        for (j, one), (k, other) in combinations(self._means.items(), 2):
            agreement = _agreement(one, other)
            if agreement is not None:
                best[j] = max(best.get(j, 0.0), agreement)
                best[k] = max(best.get(k, 0.0), agreement)
        usual = [value for value in best.values() if value >= _AGREES]
        if len(usual) < 2:
            return {}
        return {
            k: (
                f"the directions of its class means agree with nobody's ({value:.2f}; "
                f"others: {min(usual):.2f} or more), so its rows may be of another "
                "encoder, or its columns in another order"
            )
            for k, value in best.items()
            if value < _AGREES_WITH_NOBODY
        }


def _agreement(
    one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]
) -> float | None:
    """The size of the mean cosine over shared classes; None if they are too few."""
    shared = one[0] & other[0]
    if shared.sum() < _SHARED:
        return None
    a, b = (means[shared] - means[shared].mean(axis=0) for _, means in (one, other))
    sizes = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines = np.einsum("cd,cd->c", a, b) / np.where(sizes > 0, sizes, 1.0)
    return abs(float(cosines.mean()))


def _lengths(upload: StatisticsUpload) -> tuple[np.ndarray, np.ndarray]:
    """The norms of class means [C] and of class spreads [C]; NaN for missing classes.

    A spread is the standard deviation over all directions.
    """
    held = upload.statistics
    means = held.means.norm(dim=1).numpy()
    spreads = np.zeros_like(means)
    if held.content == "class":
        for c in held.classes:
            spreads[c] = (held.trace_of(c) / float(held.counts[c])) ** 0.5
    elif held.classes:
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
