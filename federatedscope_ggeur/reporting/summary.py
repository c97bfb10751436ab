"""Scores: over domains within a round, and over the last rounds of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.reporting.results import Final, Round0, RoundRecord


def average(accuracy: dict[str, float | None]) -> tuple[float | None, float | None]:
    """AVG and STD of one accuracy for each domain.

    Returns
    -------
    avg, std : float or None
        The plain mean over domains and the population standard deviation (ddof 0).
        Domains that are None are left out; both are None when no domain is left.
    """
    scores = [score for score in accuracy.values() if score is not None]
    if not scores:
        return None, None
    avg = fmean(scores)
    return avg, math.sqrt(fmean((score - avg) ** 2 for score in scores))


def summarise(
    rounds: Sequence[RoundRecord], round0: Round0 | None = None, last: int = 5
) -> Final:
    """The score of a run: the mean of each domain over its last evaluated rounds.

    Parameters
    ----------
    rounds : sequence of RoundRecord
        In order.
    round0 : Round0, optional
        Its bytes and seconds count towards the totals.
    last : int
        How many evaluated rounds to take; fewer where there are fewer.

    Raises
    ------
    ConfigError
        If `last` is below 1.
    """
    if last < 1:
        raise ConfigError(f"last must be at least 1, got {last}")
    used = [record for record in rounds if record.evaluated][-last:]
    domains = dict.fromkeys(domain for record in used for domain in record.accuracy)
    accuracy = {
        domain: _mean_of_known(record.accuracy.get(domain) for record in used)
        for domain in domains
    }
    avg, std = average(accuracy)
    parts = [*rounds, round0] if round0 is not None else list(rounds)
    return Final(
        rounds=[record.round for record in used],
        accuracy=accuracy,
        avg=avg,
        std=std,
        bytes_up=sum(part.bytes_up for part in parts),
        bytes_down=sum(part.bytes_down for part in parts),
        seconds=math.fsum(part.seconds for part in parts),
    )


def _mean_of_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
