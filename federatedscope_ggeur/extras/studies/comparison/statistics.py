"""Means over seeds, and paired differences with intervals and p-values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy import stats

#: The level of the intervals. A p-value below the second number is significant.
CONFIDENCE, SIGNIFICANT = 0.95, 0.05
#: With fewer seeds Wilcoxon's test is never significant, even before correction. Its
#: smallest two-sided p-value is 2 / 2^n, which is 0.0625 for five seeds.
WILCOXON_FROM = 6
# A deviation below this share of the numbers counts as zero: it is rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Spread:
    """Mean, deviation and interval of the numbers of several seeds.

    Attributes
    ----------
    n : int
        The number of seeds.
    mean : float
    sd : float or None
        The sample standard deviation (ddof 1). None for one seed.
    low, high : float or None
        The 95% interval of the mean, by Student's t. None for one seed. Also None if
        `sd` is 0, because numbers that do not depend on the seed do not tell how exact
        their mean is.
    """

    n: int
    mean: float
    sd: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """The spread of `values`, one for each seed; None if there are none."""
        if not values:
            return None
        mean, sd = fmean(values), _sd(values)
        if not sd:
            return cls(len(values), mean, sd, None, None)
        half = stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)
        half *= sd / math.sqrt(len(values))
        return cls(len(values), mean, sd, float(mean - half), float(mean + half))

    @property
    def error(self) -> float | None:
        """The standard error of the mean; None for one seed."""
        return None if self.sd is None else self.sd / math.sqrt(self.n)


@dataclass(frozen=True)
class Difference:
    """The difference of two rows, seed by seed.

    Attributes
    ----------
    spread : Spread
        The spread of the differences, over the seeds that both rows have.
    p : float or None
        The p-value of the paired t-test, two-sided. It is 1 if both rows are equal on
        two or more seeds. It is None for one seed. It is also None if all differences
        are the same number other than 0, because a t-test needs a deviation.
    p_wilcoxon : float or None
        The p-value of Wilcoxon's signed-rank test, two-sided and exact. It is 1 if all
        differences are 0, and None with fewer than `WILCOXON_FROM` seeds.
    p_holm, p_wilcoxon_holm : float or None
        The same p-values, corrected by Holm for all rows of the table.
    """

    spread: Spread
    p: float | None
    p_wilcoxon: float | None
    p_holm: float | None = None
    p_wilcoxon_holm: float | None = None

    @property
    def is_significant(self) -> bool:
        """Whether the t-test is significant after correction."""
        return self.p_holm is not None and self.p_holm < SIGNIFICANT


def paired(
    row: Mapping[int, float], other: Mapping[int, float]
) -> tuple[Spread, float | None, float | None] | None:
    """The differences `row` minus `other`, over the seeds that both have.

    Returns
    -------
    spread, p, p_wilcoxon
        The fields of `Difference`. The result is None if the rows have no common seed.
    """
    seeds = sorted(set(row) & set(other))
    differences = [row[seed] - other[seed] for seed in seeds]
    largest = max((abs(v) for s in seeds for v in (row[s], other[s])), default=0.0)
    # Equal numbers may differ by rounding.
    differences = [0.0 if abs(d) <= _ROUNDING * largest else d for d in differences]
    spread = Spread.of(differences)
    if spread is None:
        return None
    if spread.n < 2:
        return spread, None, None
    if not any(differences):
        return spread, 1.0, 1.0 if spread.n >= WILCOXON_FROM else None
    p = None
    if spread.sd:
        t = spread.mean / (spread.sd / math.sqrt(spread.n))
        p = float(2 * stats.t.sf(abs(t), spread.n - 1))
    return spread, p, _wilcoxon(differences)


def differences(
    rows: Mapping[str, tuple[Mapping[int, float], Mapping[int, float]]],
) -> dict[str, Difference]:
    """The difference of each row to its baseline, with p-values corrected for all rows.

    Parameters
    ----------
    rows : mapping
        The numbers of each row and of its baseline, by the row's name, and each by
        seed. Rows without a common seed are left out.
    """
    found = {name: paired(*both) for name, both in rows.items()}
    known = {name: values for name, values in found.items() if values is not None}
    ts = holm([p for _, p, _ in known.values()])
    ranks = holm([p for _, _, p in known.values()])
    return {
        name: Difference(*values, p_holm, p_wilcoxon_holm)
        for (name, values), p_holm, p_wilcoxon_holm in zip(known.items(), ts, ranks)
    }


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Correct p-values by Holm's step-down method. None stays None.

    The k-th smallest of m p-values is multiplied by m - k + 1. The result is at least
    as large as the one before it, and at most 1.
    """
    order = sorted((p, i) for i, p in enumerate(ps) if p is not None)
    corrected: list[float | None] = [None] * len(ps)
    least = 0.0
    for before, (p, i) in enumerate(order):
        least = max(least, min(1.0, (len(order) - before) * p))
        corrected[i] = least
    return corrected


def _sd(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = fmean(values)
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
    return 0.0 if sd <= _ROUNDING * max(map(abs, values)) else sd


def _wilcoxon(differences: Sequence[float]) -> float | None:
    """The exact p-value of Wilcoxon's test, also with ties. Zeros are left out.

    Given the ranks, both signs are equally likely. This is not scipy's test. If there
    are ties, scipy approximates in ways that depend on its version.
    """
    if len(differences) < WILCOXON_FROM:
        return None
    # Test scores are fractions of few rows. Differences that are equal up to rounding
    # share a rank.
    rounded = [float(f"{d:.12g}") for d in differences if d]
    ranks = stats.rankdata([abs(d) for d in rounded])
    doubled = [round(2 * rank) for rank in ranks]  # shared ranks are halves
    ways = [1] + [0] * sum(doubled)  # the ways to get each sum of positive ranks
    for rank in doubled:
        ways = [n + (ways[i - rank] if i >= rank else 0) for i, n in enumerate(ways)]
    found = sum(rank for rank, d in zip(doubled, rounded) if d > 0)
    tail = min(sum(ways[: found + 1]), sum(ways[found:]))
    return min(1.0, 2 * tail / 2 ** len(doubled))
