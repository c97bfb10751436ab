"""Write parts of a run's record as lines of text."""

from __future__ import annotations

from federatedscope_ggeur.errors import setting

from .records import (
    AbsentClasses,
    Divergence,
    Final,
    Finding,
    Kept,
    NoiseRecord,
    PersonalRecord,
    PooledRows,
    Privacy,
    ProbabilityScores,
    Round0,
    RoundRecord,
    Screening,
    SumsRecord,
    WorstClient,
)

_MOST_FINDINGS = 10  # findings that are written out


def record_lines(record: Round0 | RoundRecord) -> list[str]:
    """Round 0 or calibration as lines of text."""
    if isinstance(record, RoundRecord):
        return [_head_line("calibrated by", record)]
    lines = [_round0_line(record)]
    if record.space is not None:
        lines.append(_space_line(record))
    if record.closed_form is not None:
        lines.append(_head_line("closed form", record.closed_form))
    if record.personal is not None:
        lines.append(_personal_line(record.personal))
    return lines


def _personal_line(found: PersonalRecord) -> str:
    kappa = "infinite" if found.kappa is None else f"{found.kappa:g}"
    return (
        f"clients' own heads: AVG {percent(found.avg)}% on their own test rows (kappa "
        f"{kappa}, prior {found.prior}; {percent(found.uniform)}% with all classes "
        "counted alike)"
    )


def _round0_line(record: Round0) -> str:
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
        f"{up / 1e6:.2f} MB ({up / len(record.clients) / 1e6:.2f} MB a "
        f"client); geometry down {record.geometry_bytes_down / 1e6:.2f} MB, prototypes "
        f"down {record.prototypes_bytes_down / 1e6:.2f} MB; {record.seconds:.2f} s"
    )


def _sums_line(record: Round0, sums: SumsRecord, up: int) -> str:
    """The secure sums of round 0, as one line."""
    kept = f", {len(sums.kept_back)} of them kept back" if sums.kept_back else ""
    return (
        f"round 0: statistics of {len(sums.roster)} clients as secure sums, "
        f"{up / 1e6:.2f} MB ({up / len(sums.roster) / 1e6:.2f} MB a client); "
        f"{len(sums.classes)} classes{kept}, {sums.withheld_rows} rows of others; "
        f"geometry down {record.geometry_bytes_down / 1e6:.2f} MB, prototypes down "
        f"{record.prototypes_bytes_down / 1e6:.2f} MB; {record.seconds:.2f} s"
    )


def _noise_line(record: Round0, noise: NoiseRecord, up: int) -> str:
    """The release under differential privacy in round 0, as one line."""
    against = ", ".join(
        f"{who} {'none' if epsilon is None else format(epsilon, '.3g')}"
        for who, epsilon in noise.epsilon_against.items()
    )
    deviations = ", ".join(f"{b} {s:.3g}" for b, s in noise.deviations.items())
    mark = "" if noise.private else "NOT PRIVATE (test seed); "
    return (
        f"round 0: {mark}statistics of {noise.clients} clients with noise, "
        f"{up / 1e6:.2f} MB ({up / noise.clients / 1e6:.2f} MB a client); epsilon "
        f"against {against}; noise: {deviations}; {record.seconds:.2f} s"
    )


def privacy_line(privacy: Privacy) -> str:
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


def _space_line(record: Round0) -> str:
    """The space of training as one line."""
    up, down = record.totals_bytes_up / 1e6, record.space_bytes_down / 1e6
    about = {**(record.space or {})}
    kind = about.pop("kind")
    details = "".join(
        f", {name} {value if isinstance(value, str) else f'{value:.3g}'}"
        for name, value in about.items()
    )
    return f"space: {kind}{details}; {up:.2f} MB up, {down:.2f} MB down"


def _head_line(name: str, record: RoundRecord) -> str:
    """One line about a head that was made without rounds.

    `name` tells which method made the head.
    """
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
    return f"{name} {record.method}: AVG {score}{about}; {record.seconds:.2f} s"


def divergence_line(found: Divergence) -> str:
    """The round in which training diverged, and the signs of it, as one line."""
    who = "the server's step" if found.client is None else f"client {found.client}"
    if found.rate is not None:
        who += f", {setting('optimizer.lr')} {found.rate:g}"
    seen = []
    if found.loss is not None:
        seen.append(f"loss {found.loss:.3g}")
        if found.first_loss is not None and found.first_loss != found.loss:
            seen[-1] += f", {found.first_loss:.3g} at first"
    if found.largest_weight is not None:
        seen.append(f"largest weight {found.largest_weight:.3g}")
    return f"training diverged in round {found.round} ({who}): {'; '.join(seen)}"


def pooled_line(pooled: PooledRows) -> str:
    """The rows that were pooled, as one line."""
    return (
        f"of the bytes up, {pooled.bytes_up / 1e6:.2f} MB are the {pooled.rows} rows "
        f"of {pooled.clients} clients, pooled in one place to train on"
    )


def screening_lines(screening: Screening) -> list[str]:
    """The findings of screening, and what could not be screened, as lines."""
    lines = [_finding_line(f) for f in screening.findings[:_MOST_FINDINGS]]
    more = len(screening.findings) - _MOST_FINDINGS
    if more > 0:
        lines.append(f"and {more} more findings, in results.json")
    return [f"screening: {line}" for line in [*lines, *screening.blind_to]]


def _finding_line(found: Finding) -> str:
    when = f"round {found.round}"
    if found.rounds > 1:
        when += f", and {found.rounds - 1} later"
    fate = "; it was barred" if found.refused else ""
    return f"client {found.client} ({when}): {found.problem}{fate}"


def kept_line(kept: Kept, averaged: bool = False) -> str:
    """Which of two heads a run keeps, and why, as one line.

    `averaged` says that the mean of both heads stood in place of the trained head.
    """
    names = {"closed_form": "the head in closed form", "trained": "the trained head"}
    name = names.get(kept.head, "the mean of the probabilities of both heads")
    if kept.by == "validation":
        other = "by both heads' mean" if averaged else "trained"
        why = (
            f"{percent(kept.closed_form)}% of the validation rows right in closed "
            f"form, {percent(kept.trained)}% {other}"
        )
    elif kept.by == "confounded":
        why = (
            "labels and domains are confounded: no client's rows can compare the heads"
        )
    elif kept.by == "leave_one_out":
        why = "it has seen every class that a client has enough rows of"
    elif kept.by == "absent":
        why = "only it has seen the classes that nobody sent"
    elif kept.head == "average":
        why = "every class was sent, but only the trained head has seen withheld rows"
    else:
        why = "there are no validation rows"
    return f"kept: {name} ({why})"


def probabilities_line(final: Final) -> str:
    """The scores of the head's probabilities, as one line."""
    found = final.probabilities
    assert found is not None, "nobody scored probabilities"
    line = f"probabilities: {_probabilities(found.after)}"
    if found.before is not None:
        line += f"; before the temperature: {_probabilities(found.before)}"
    by = {
        "leave_one_out": "calibrated by rows left out",
        "validation": "calibrated by validation rows",
        "start": "calibrated start",
    }
    return f"{line} ({by.get(final.calibrated_by or '', 'not calibrated')})"


def absent_line(absent: AbsentClasses, threshold: int) -> str:
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


def _probabilities(scores: ProbabilityScores) -> str:
    return (
        f"ECE {percent(scores.ece)}%, log-loss {scores.log_loss:.3f}, "
        f"Brier {scores.brier:.3f}"
    )


def worst_client_line(worst: WorstClient) -> str:
    """The client with the lowest accuracy, as one line."""
    return (
        f"worst client: {worst.client} with {percent(worst.accuracy)}%; the mean over "
        f"clients is {percent(worst.mean)}%"
    )


def percent(fraction: float | None) -> str:
    """An accuracy in percent as text; "-" if there is none."""
    return "-" if fraction is None else f"{100 * fraction:.2f}"
