"""Write parts of a run's record as lines of text.

Scores over the domains of a round, and over the last rounds of a run.

Find out which client's model predicts each row, if clients have own models.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from federatedscope_ggeur.errors import DataError, listed, setting, shown

from . import records

if TYPE_CHECKING:
    import numpy as np


_WHY_KEPT = {
    "validation": "",
    "confounded": "labels and domains are or may be confounded, so no client's rows "
    "can compare the heads",
    "log_loss": "it has the smallest log-loss on rows that training did not see",
    "leave_one_out": "it has seen every class that a client has enough rows of",
    "right": "it is right on nearly all left-out rows",
    "apart": "clients or domains differ so much that a trained head is far behind",
    "absent": "only it has seen the classes that nobody sent",
    "withheld": "every class was sent, but only the trained head has seen withheld "
    "rows",
    "columns": "few columns or classes, so the trained head has a hidden layer",
    "default": "there are no validation rows",
}
_MOST_FINDINGS = 10  # findings that are written out
#: So many evaluated rounds make the final score.
_LAST = 5


def record_lines(record: records.Round0 | records.RoundRecord) -> list[str]:
    """Round 0 or calibration as lines of text."""
    if isinstance(record, records.RoundRecord):
        return [_head_line(record.title_after, record)]
    lines = [_round0_line(record)]
    if record.space is not None:
        lines.append(_space_line(record))
    if record.closed_form is not None:
        solved = record.closed_form
        lines.append(_head_line(f"closed form {solved.method}", solved))
    if record.personal is not None:
        lines.append(_personal_line(record.personal))
    return lines


def _personal_line(record: records.PersonalRecord) -> str:
    kappa = "infinite" if record.kappa is None else f"{record.kappa:g}"
    return (
        f"clients' own heads: AVG {percent(record.avg)}% on their own test rows (kappa "
        f"{kappa}; {percent(record.uniform)}% with all classes "
        "counted alike)"
    )


def _round0_line(record: records.Round0) -> str:
    """What clients sent and received in round 0, as one line."""
    if not record.statistics_bytes_up:
        return f"round 0: no statistics asked for; {record.seconds:.2f} s"
    up = sum(record.statistics_bytes_up.values())
    if record.noise is not None:
        return _noise_line(record, record.noise, up)
    if record.sums is not None:
        return _sums_line(record, record.sums, up)
    pairs = f"{record.uploaded_pairs}"
    if record.withheld_pairs is not None:
        pairs += f" of {record.uploaded_pairs + record.withheld_pairs}"
    return (
        f"round 0: statistics of {pairs} (client, class) pairs up, "
        f"{_sent(up, len(record.clients))}; {_sent_down(record)}"
    )


def _sent(up: int, clients: int) -> str:
    return f"{up / 1e6:.2f} MB ({up / clients / 1e6:.2f} MB a client)"


def _sent_down(record: records.Round0) -> str:
    return (
        f"geometry down {record.geometry_bytes_down / 1e6:.2f} MB, prototypes down "
        f"{record.prototypes_bytes_down / 1e6:.2f} MB; {record.seconds:.2f} s"
    )


def _sums_line(record: records.Round0, sums: records.SumsRecord, up: int) -> str:
    """The secure sums of round 0, as one line."""
    kept = f", {len(sums.kept_back)} of them kept back" if sums.kept_back else ""
    return (
        f"round 0: statistics of {len(sums.roster)} clients as secure sums, "
        f"{_sent(up, len(sums.roster))}; {len(sums.classes)} classes{kept}, "
        f"{sums.withheld_rows} rows of others; {_sent_down(record)}"
    )


def _noise_line(record: records.Round0, noise: records.NoiseRecord, up: int) -> str:
    """The release under differential privacy in round 0, as one line."""
    against = ", ".join(
        f"{who} {'none' if epsilon is None else format(epsilon, '.3g')}"
        for who, epsilon in noise.epsilon_against.items()
    )
    deviations = ", ".join(f"{b} {s:.3g}" for b, s in noise.deviations.items())
    mark = "" if noise.private else "NOT PRIVATE (test seed); "
    return (
        f"round 0: {mark}statistics of {noise.clients} clients with noise, "
        f"{_sent(up, noise.clients)}; epsilon against {against}; noise: {deviations}; "
        f"{record.seconds:.2f} s"
    )


def privacy_line(privacy: records.Privacy) -> str:
    """The run's privacy guarantee as one line."""
    if privacy.dp is not None:
        dp = privacy.dp
        claimed = f"epsilon {dp.epsilon:g}, delta {dp.delta:g}, {dp.adjacency}"
        if privacy.guarantee == "none":
            claimed = "no guarantee"
        return (
            f"privacy: {claimed}, against {' and '.join(privacy.against)}; "
            + "; ".join(privacy.warnings)
        )
    if privacy.guarantee == "none":
        said = list(privacy.warnings)
        if privacy.threshold:
            threshold = f"a min-count threshold of {privacy.threshold} on each "
            said.insert(0, threshold + privacy.threshold_on)
        return f"privacy: no guarantee; {'; '.join(said)}"
    return (
        f"privacy: {privacy.guarantee}; {privacy.keys}; of "
        f"{', '.join(privacy.covers)} only, against "
        f"{' and '.join(privacy.against)} only (threshold {privacy.threshold} on the "
        f"{privacy.threshold_on}); " + "; ".join(privacy.warnings)
    )


def _space_line(record: records.Round0) -> str:
    """The space of training as one line."""
    up, down = record.totals_bytes_up / 1e6, record.space_bytes_down / 1e6
    about = {**(record.space or {})}
    kind = about.pop("kind")
    details = "".join(
        f", {name} {value if isinstance(value, str) else f'{value:.3g}'}"
        for name, value in about.items()
    )
    return f"space: {kind}{details}; {up:.2f} MB up, {down:.2f} MB down"


def _head_line(title: str, record: records.RoundRecord) -> str:
    """One line about a head that was made without rounds."""
    score = "-" if record.avg is None else f"{100 * record.avg:.2f}%"
    details = ", ".join(
        f"{key.replace('_', ' ')} {value:.3g}"
        if isinstance(value, float)
        else f"{key.replace('_', ' ')} {value}"
        for key, value in record.details.items()
        # A note was logged already.
        if key != "note" and not isinstance(value, (list, dict))
    )
    about = f" ({details})" if details else ""
    return f"{title}: AVG {score}{about}; {record.seconds:.2f} s"


def divergence_line(signs: records.Divergence) -> str:
    """The round in which training diverged, and the signs of it, as one line."""
    who = "the server's step" if signs.client is None else f"client {signs.client}"
    if signs.rate is not None:
        who += f", {setting('optimizer.lr')} {signs.rate:g}"
    seen = []
    if signs.loss is not None:
        seen.append(f"loss {signs.loss:.3g}")
        if signs.first_loss is not None and signs.first_loss != signs.loss:
            seen[-1] += f", {signs.first_loss:.3g} at first"
    if signs.largest_weight is not None:
        seen.append(f"largest weight {signs.largest_weight:.3g}")
    return f"training diverged in round {signs.round} ({who}): {'; '.join(seen)}"


def pooled_line(pooled: records.PooledRows) -> str:
    """The rows that were pooled, as one line."""
    return (
        f"of the bytes up, {pooled.bytes_up / 1e6:.2f} MB are the {pooled.rows} rows "
        f"of {pooled.clients} clients, pooled in one place to train on"
    )


def screening_lines(screening: records.Screening) -> list[str]:
    """The findings of screening, and what could not be screened, as lines."""
    lines = [_finding_line(f) for f in screening.findings[:_MOST_FINDINGS]]
    more = len(screening.findings) - _MOST_FINDINGS
    if more > 0:
        lines.append(f"and {more} more findings, in results.json")
    return [f"screening: {line}" for line in [*lines, *screening.blind_to]]


def _finding_line(finding: records.Finding) -> str:
    when = f"round {finding.round}"
    if finding.rounds > 1:
        when += f", and {finding.rounds - 1} later"
    fate = "; it was barred" if finding.refused else ""
    return f"client {finding.client} ({when}): {finding.problem}{fate}"


def kept_line(
    kept: records.Kept,
    averaged: bool = False,
    share: float | None = None,
    adds: bool = False,
) -> str:
    """Which of two heads a run keeps, and why, as one line.

    `averaged` says that the mean of both heads stood in place of the trained head, and
    `share` is the chosen share of the head in closed form. `adds` says that the trained
    head learnt with offsets, which belong to its scores.
    """
    names = {"closed_form": "the head in closed form", "trained": "the trained head"}
    name = names.get(kept.head, "the mean of the probabilities of both heads")
    why = _WHY_KEPT[kept.by]
    if kept.by == "validation":
        other = "by both heads' mean" if averaged else "trained"
        why = (
            f"{percent(kept.closed_form)}% of the validation rows right in closed "
            f"form, {percent(kept.trained)}% {other}"
        )
    if kept.head == "average":
        if share == 0:
            name = names["trained"]
        elif share is not None:
            name += f", {share:.0%} of the head in closed form"
        if adds:
            who = "which" if share == 0 else "where the trained head"
            name += f", {who} adds to the scores of the head in closed form"
    return f"kept: {name} ({why})"


def probabilities_line(final: records.Final) -> str:
    """The scores of the head's probabilities, as one line."""
    scored = final.probabilities
    assert scored is not None, "nobody scored probabilities"
    line = f"probabilities: {_probabilities(scored.after)}"
    if scored.before is not None:
        line += f"; before calibration: {_probabilities(scored.before)}"
    if scored.floor:
        line += f"; {scored.floor:.0%} is shared equally by all classes"
    by = {
        "leave_one_out": "calibrated by rows left out",
        "totals": "calibrated by the sums",
        "validation": "calibrated by validation rows",
        "held_out": "calibrated by rows held out of training",
        "start": "calibrated start",
    }
    return f"{line} ({by.get(final.calibrated_by or '', 'not calibrated')})"


def absent_line(absent: records.AbsentClasses, threshold: int) -> str:
    """The classes that nobody sent, and the scores without their rows, as one line.

    `threshold` is the smallest number of rows that a client tells apart.
    """
    line = f"classes that nobody sent: {absent.classes}"
    if not absent.rows:
        return f"{line}; no client has {threshold} or more test rows of them"
    line += f", with {absent.rows} test rows ({percent(absent.accuracy)}% right)"
    if absent.others is None:
        return line
    return (
        f"{line}; without these rows {percent(absent.accuracy_of_others)}% right, "
        f"{_probabilities(absent.others)}"
    )


def _probabilities(scores: records.ProbabilityScores) -> str:
    return (
        f"ECE {percent(scores.ece)}%, log-loss {scores.log_loss:.3f}, "
        f"Brier {scores.brier:.3f}"
    )


def worst_client_line(worst: records.WorstClient) -> str:
    """The client with the lowest accuracy, as one line."""
    return (
        f"worst client: {worst.client} with {percent(worst.accuracy)}%; the mean over "
        f"clients is {percent(worst.mean)}%"
    )


def percent(fraction: float | None) -> str:
    """An accuracy in percent as text; "-" if there is none."""
    return "-" if fraction is None else f"{100 * fraction:.2f}"


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
    rounds: Sequence[records.RoundRecord],
    round0: records.Round0 | None = None,
    calibrated: records.RoundRecord | None = None,
    kept: records.Kept | None = None,
    pooled: records.PooledRows | None = None,
    scaling: records.TemperatureScaling | None = None,
) -> records.Final:
    """The final score of a run: the score of the head that the run leaves.

    A head trained in rounds scores, on each domain, the mean over the last five
    evaluated rounds, or over all if there are fewer. A calibrated head and a head in
    closed form are scored once, and that score counts.

    Parameters
    ----------
    rounds : sequence of RoundRecord
        In order.
    round0 : Round0, optional
        The bytes and seconds of round 0 count in the totals.
    calibrated : RoundRecord, optional
        The bytes and seconds of the calibration count, too.
    kept : Kept, optional
        Which head the run leaves, if there was a choice.
    pooled : PooledRows, optional
        Pooled rows count as sent.
    scaling : TemperatureScaling, optional
        The bytes and seconds of temperature scaling count, too.
    """
    used = [record for record in rounds if record.evaluated][-_LAST:]
    closed_form = round0.closed_form if round0 is not None else None
    personal = round0.personal if round0 is not None else None
    every = (*rounds, round0, closed_form, personal, calibrated, scaling)
    parts = [part for part in every if part is not None]
    pools = [] if pooled is None else [pooled]
    single, head = None, "trained"
    if closed_form is not None and (
        not rounds or (kept is not None and kept.head == "closed_form")
    ):
        single, head = closed_form, "closed_form"
    elif calibrated is not None:
        single, head = calibrated, "calibrated"
    accuracy = _mean_accuracy(used) if single is None else dict(single.accuracy)
    avg, std = average(accuracy)
    return records.Final(
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


def _mean_accuracy(used: Sequence[records.RoundRecord]) -> dict[str, float | None]:
    domains = dict.fromkeys(domain for record in used for domain in record.accuracy)
    return {
        domain: _mean_of_known(record.accuracy.get(domain) for record in used)
        for domain in domains
    }


def _mean_of_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


_LISTED = 20


def numbers_of_rows(
    clients: Any,
    rows: int,
    known: Sequence[records.ClientInfo],
    shared: bool,
    name: str,
) -> np.ndarray:
    """The number of the client whose model predicts each row: int64 array [rows].

    Parameters
    ----------
    clients : int or sequence of int
        One number for all rows, or one for each row. None is allowed only if there is
        just one client.
    rows : int
    known : sequence of ClientInfo
        The clients that have their own model.
    shared : bool
        Whether there is a global model, number 0.
    name : str
        The name of `clients` in error messages.

    Raises
    ------
    DataError
        `clients` is missing or wrong. The error names the clients and their domains.
    """
    # Imported here, because reading and writing results needs no numpy.
    import numpy as np

    if clients is None and len(known) == 1:
        clients = known[0].number
    if clients is None:
        raise DataError(
            f"{name}: every client has its own model, so say which client's model is "
            f"to predict: one number for all rows, or one for each row.{_those(known)}"
            + (" 0 is the global model." if shared else "")
        )
    try:
        given = np.asarray(clients)
    except (TypeError, ValueError):  # rows of several lengths
        given = np.empty(1, dtype=object)
    if not given.size:  # numpy takes an empty list for floats
        given = given.astype(np.int64)
    if given.ndim > 1 or given.dtype.kind not in "iu":
        raise DataError(
            f"{name}: must be a client's number, or one number for each row, got "
            f"{shown(clients)}.{_those(known)}"
        )
    if given.ndim and len(given) != rows:
        raise DataError(
            f"{name}: must be one number, or one for each of the {rows} rows, got "
            f"{len(given)}"
        )
    numbers = {info.number for info in known} | ({0} if shared else set())
    unknown = [n for n in np.unique(given).tolist() if n not in numbers]
    if unknown:
        raise DataError(f"{name}: there is no client {unknown[0]}.{_those(known)}")
    return np.broadcast_to(given.astype(np.int64), (rows,)).copy()


def _those(known: Sequence[records.ClientInfo]) -> str:
    domains = [shown(info.domain, 60).strip("'\"") for info in known]
    names = [f"{info.number} ({d})" for info, d in zip(known, domains)]
    return f" The clients and their domains: {listed(names, _LISTED)}."
