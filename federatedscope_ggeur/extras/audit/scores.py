"""Measures how well attacks distinguish members from other rows, with intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from .base import Finding, untried

#: Limits of the AUC, and of the hit rate at AT false alarms. A run fails at level
#: membership if an attack's lower bound is above its limit.
AUC_LIMIT, RATE_LIMIT, AT = 0.60, 0.05, 0.01


def auc(members: np.ndarray, others: np.ndarray) -> tuple[float, float, float]:
    """The AUC of members against other rows, with DeLong's 95% interval.

    The AUC is the probability that a member scores higher than another row; ties count
    half.

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
    """The rate of members found at a rate `share` of false alarms, and a lower bound.

    The bound is Clopper and Pearson's, with error 0.05 over all `attacks` together.
    """
    limit = np.quantile(others, 1 - share, method="higher")
    hits, m = int((members > limit).sum()), len(members)
    low = stats.beta.ppf(0.05 / attacks, hits, m - hits + 1) if hits else 0.0
    return hits / m, float(low)


def more_than_chance(chances: Sequence[float], error: float = 0.05) -> int:
    """The smallest h for which guesses hit h or more times with probability <= `error`.

    Guess i of n hits with the probability `chances[i]`. The result is n + 1 if even n
    hits are likelier than `error`.

    Notes
    -----
    The distribution of the sum (Poisson binomial) is computed by convolution.
    """
    mass = np.ones(1)
    for p in chances:
        mass = np.convolve(mass, [1 - p, p])
    at_least = np.append(mass[::-1].cumsum()[::-1], 0.0)
    return int(np.argmax(at_least <= error))


def reidentified(
    attack: str,
    what: str,
    ranks: Sequence[int],
    chances: Sequence[float],
    among: str,
    recovered: int | None = None,
    notes: Sequence[str] = (),
) -> Finding:
    """Make a finding of how many classes were re-identified, compared with chance.

    A class is re-identified if a row of the client has rank 1. `among` names the ranked
    rows. `recovered` is the number of rows that an attack computed by itself.
    """
    hits, tried = ranks.count(1), len(ranks)
    least = more_than_chance(chances)
    told = least <= tried
    within = stats.binomtest(hits, tried).proportion_ci(method="exact")
    power = (
        f"{least} or more fail"
        if told
        else "too few known rows to distinguish the result from chance"
    )
    rank = f"median rank of its nearest row {np.median(ranks):g} of {among}"
    found = "" if recovered is None else f"{recovered} rows recovered"
    return Finding(
        attack=attack,
        observer="server",
        figure=f"{what} re-identified, of {tried}",
        value=float(hits),
        low=within.low * tried,
        high=within.high * tried,
        chance=float(np.sum(chances)),
        limit=float(least - 1) if told else None,
        level="rows",
        passed=not recovered and hits < least if told or recovered else None,
        tried=tried,
        note="; ".join(filter(None, [found, rank, power, *notes])),
    )


def membership(
    attack: str,
    observer: str,
    members: np.ndarray,
    others: np.ndarray,
    attacks: int = 4,
    note: str = "",
) -> Finding:
    """Make the finding of a membership attack from the scores of all rows."""
    if not len(members) or not len(others):
        why = (
            "the attack had no members, no other rows to compare, or no time; set "
            "aside test rows by data.splits"
        )
        return untried(attack, observer, "membership", why)
    value, low, high = auc(members, others)
    rate, least = hit_rate(members, others, AT, attacks)
    fails = low > AUC_LIMIT or least > RATE_LIMIT
    said = f"{rate:.3f} of members at {AT:.0%} false ones ({least:.3f} at least)"
    power = f"about {AUC_LIMIT + value - low:.2f} or more fail" if low else ""
    return Finding(
        attack=attack,
        observer=observer,
        figure="AUC",
        value=value,
        low=low,
        high=high,
        chance=0.5,
        limit=AUC_LIMIT,
        level="membership",
        passed=not fails,
        tried=len(members),
        note="; ".join(filter(None, [said, power, note])),
    )
