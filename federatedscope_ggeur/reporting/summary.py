"""Scores over the domains of a round, and over the last rounds of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.reporting.records import (
    Final,
    Kept,
    PooledRows,
    Round0,
    RoundRecord,
    TemperatureScaling,
)


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
    rounds: Sequence[RoundRecord],
    round0: Round0 | None = None,
    calibrated: RoundRecord | None = None,
    last: int = 5,
    kept: Kept | None = None,
    pooled: PooledRows | None = None,
    scaling: TemperatureScaling | None = None,
) -> Final:
    """The score of a run, which is the score of the head that it leaves.

    For a head trained in rounds it is each domain's mean over the last evaluated
    rounds. For a calibrated head, or one in closed form, it is that head's own.

    Parameters
    ----------
    rounds : sequence of RoundRecord
        In order.
    round0 : Round0, optional
        Its bytes and seconds count towards the totals.
    calibrated : RoundRecord, optional
        Its bytes and seconds count, too.
    last : int
        The number of evaluated rounds to take; all, if there are fewer.
    kept : Kept, optional
        Which head the run leaves, if there was a choice.
    pooled : PooledRows, optional
        Pooled rows count as sent.
    scaling : TemperatureScaling, optional
        Its bytes and seconds count, too.

    Raises
    ------
    ConfigError
        `last` is below 1.
    """
    if last < 1:
        raise ConfigError(f"last must be at least 1, got {last}")
    used = [record for record in rounds if record.evaluated][-last:]
    closed_form = round0.closed_form if round0 is not None else None
    personal = round0.personal if round0 is not None else None
    every = (*rounds, round0, closed_form, personal, calibrated, scaling)
    parts = [part for part in every if part is not None]
    pools = [] if pooled is None else [pooled]
    single, head = None, "trained"
    if calibrated is not None:
        single, head = calibrated, "calibrated"
    elif closed_form is not None and (
        not rounds or (kept is not None and kept.head == "closed_form")
    ):
        single, head = closed_form, "closed_form"
    accuracy = _mean_accuracy(used) if single is None else dict(single.accuracy)
    avg, std = average(accuracy)
    return Final(
        head=head,
        rounds=[record.round for record in used] if single is None else [],
        accuracy=accuracy,
        avg=avg,
        std=std,
        bytes_up=sum(part.bytes_up for part in (*parts, *pools)),
        bytes_down=sum(part.bytes_down for part in parts),
        seconds=math.fsum(part.seconds for part in parts),
        kept=kept,
    )


def _mean_accuracy(used: Sequence[RoundRecord]) -> dict[str, float | None]:
    domains = dict.fromkeys(domain for record in used for domain in record.accuracy)
    return {
        domain: _mean_of_known(record.accuracy.get(domain) for record in used)
        for domain in domains
    }


def _mean_of_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
