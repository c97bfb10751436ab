"""How well members are told from others, with intervals."""

from __future__ import annotations

import numpy as np
from scipy import stats

from federatedscope_ggeur.audit.base import Finding

#: At level membership an attack fails above these, by its lower bound.
AUC_LIMIT, RATE_LIMIT, AT = 0.60, 0.05, 0.01


def auc(members: np.ndarray, others: np.ndarray) -> tuple[float, float, float]:
    """The probability that a member scores higher than another row, ties halved, with
    DeLong's interval of 95%.

    Notes
    -----
    DeLong, DeLong, Clarke-Pearson 1988: the variance of the two placements.
    """
    m, n = len(members), len(others)
    both = stats.rankdata(np.concatenate([members, others]))
    above = (both[:m] - stats.rankdata(members)) / n
    below = 1 - (both[m:] - stats.rankdata(others)) / m
    value = float(above.mean())
    variance = np.var(above, ddof=1) / m if m > 1 else 0.0
    variance += np.var(below, ddof=1) / n if n > 1 else 0.0
    half = 1.96 * float(variance) ** 0.5
    return value, max(0.0, value - half), min(1.0, value + half)


def hit_rate(
    members: np.ndarray, others: np.ndarray, share: float, attacks: int
) -> tuple[float, float]:
    """The share of members above all but `share` of the others, and its lower bound of
    Clopper and Pearson at 0.05 over so many `attacks`."""
    limit = np.quantile(others, 1 - share, method="higher")
    hits, m = int((members > limit).sum()), len(members)
    low = stats.beta.ppf(0.05 / attacks, hits, m - hits + 1) if hits else 0.0
    return hits / m, float(low)


def membership(
    attack: str,
    observer: str,
    members: np.ndarray,
    others: np.ndarray,
    attacks: int = 4,
    note: str = "",
) -> Finding:
    """The finding of scores of members and of rows that are none."""
    if not len(members) or not len(others):
        why = "no rows to tell apart; give some to test"
        return Finding(attack, observer, "AUC", level="membership", note=why)
    value, low, high = auc(members, others)
    rate, least = hit_rate(members, others, AT, attacks)
    fails = low > AUC_LIMIT or least > RATE_LIMIT
    said = f"{rate:.3f} of members at {AT:.0%} false ones ({least:.3f} at least)"
    return Finding(
        *(attack, observer, "AUC", value, low, high, AUC_LIMIT, "membership"),
        passed=not fails,
        note="; ".join(filter(None, [said, note])),
    )
