"""Scores over the domains of a round, and over the last rounds of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from federatedscope_ggeur.errors import ConfigError

from .records import Final, Kept, PooledRows, Round0, RoundRecord, TemperatureScaling


def average(accuracy: dict[str, float | None]) -> tuple[float | None, float | None]:
    """AVG and STD over domains.

    Parameters
    ----------
    accuracy : dict from domain to accuracy
        The value None marks a domain without an accuracy, which is left out.

    Returns
    -------
    avg, std : float or None
        The plain mean over domains and the population standard deviation (ddof 0). Both
        are None if no domain has an accuracy.
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
    """The final score of a run: the score of the head that the run leaves.

    A head trained in rounds scores, on each domain, the mean over the last evaluated
    rounds. A calibrated head and a head in closed form are scored once, and that score
    counts.

    Parameters
    ----------
    rounds : sequence of RoundRecord
        In order.
    round0 : Round0, optional
        The bytes and seconds of round 0 count in the totals.
    calibrated : RoundRecord, optional
        The bytes and seconds of the calibration count, too.
    last : int
        The number of evaluated rounds to average; all rounds if there are fewer.
    kept : Kept, optional
        Which head the run leaves, if there was a choice.
    pooled : PooledRows, optional
        Pooled rows count as sent.
    scaling : TemperatureScaling, optional
        The bytes and seconds of temperature scaling count, too.

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
