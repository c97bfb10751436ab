"""A run as text: what is over of it, the table at its end, and metrics.csv."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.printable import LINE, Lines, as_html, printable
from federatedscope_ggeur.reporting.records import (
    Divergence,
    Finding,
    Kept,
    PooledRows,
    Privacy,
    Round0,
    RoundRecord,
    Screening,
    SumsRecord,
)
from federatedscope_ggeur.reporting.results import Results
from federatedscope_ggeur.reporting.summary import average, summarise

# What spreadsheets begin a formula with, also in letters of full width.
_FORMULA = re.compile(r"\s*[-=+@\uff0d\uff1d\uff0b\uff20]")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_MOST_FINDINGS = 10  # in lines for a person

#: Whose models were scored, where it was not the global one.
_SCORED_OWN = (
    "scored: each client's own model, on its own test rows; it stands where the client "
    "ran, in heads/client_<number>.safetensors"
)


def record_lines(record: Round0 | RoundRecord) -> list[str]:
    """What is over, of round 0 or of calibration, in a line each for a person."""
    if isinstance(record, RoundRecord):
        return [_head_line("calibrated by", record)]
    lines = [_round0_line(record)]
    if record.space is not None:
        lines.append(_space_line(record))
    if record.closed_form is not None:
        lines.append(_head_line("closed form", record.closed_form))
    return lines


def _round0_line(record: Round0) -> str:
    """What round 0 sent, in one line for a person."""
    if not record.statistics_bytes_up:
        return f"round 0: no statistics asked for; {record.seconds:.2f} s"
    up = sum(record.statistics_bytes_up.values())
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
    """What was summed, in one line for a person."""
    kept = f", {len(sums.kept_back)} of them kept back" if sums.kept_back else ""
    return (
        f"round 0: statistics of {len(sums.roster)} clients as secure sums, "
        f"{up / 1e6:.2f} MB ({up / len(sums.roster) / 1e6:.2f} MB a client); "
        f"{len(sums.classes)} classes{kept}, {sums.withheld_rows} rows of others; "
        f"geometry down {record.geometry_bytes_down / 1e6:.2f} MB, prototypes down "
        f"{record.prototypes_bytes_down / 1e6:.2f} MB; {record.seconds:.2f} s"
    )


def privacy_line(privacy: Privacy) -> str:
    """Which guarantee a run gives, in one line for a person."""
    if privacy.guarantee == "none":
        threshold = f"a min-count threshold of {privacy.threshold} on each "
        said = privacy.warnings or [threshold + privacy.threshold_on]
        return f"privacy: no guarantee; {'; '.join(said)}"
    return (
        f"privacy: {privacy.guarantee}; {privacy.keys}; of "
        f"{', '.join(privacy.covers)} only, against "
        f"{' and '.join(privacy.against)} only (threshold {privacy.threshold} on the "
        f"{privacy.threshold_on}); " + "; ".join(privacy.warnings)
    )


def _space_line(record: Round0) -> str:
    """What is trained in, in one line for a person."""
    up, down = record.totals_bytes_up / 1e6, record.space_bytes_down / 1e6
    about = {**(record.space or {})}
    kind = about.pop("kind")
    details = "".join(f", {name} {value:.3g}" for name, value in about.items())
    return f"space: {kind}{details}; {up:.2f} MB up, {down:.2f} MB down"


def _head_line(name: str, record: RoundRecord) -> str:
    """A head made in one go, in one line for a person; `name` says when."""
    score = "-" if record.avg is None else f"{100 * record.avg:.2f}%"
    details = ", ".join(
        f"{key.replace('_', ' ')} {value:.3g}"
        if isinstance(value, float)
        else f"{key.replace('_', ' ')} {value}"
        for key, value in record.details.items()
        if not isinstance(value, (list, dict))
    )
    about = f" ({details})" if details else ""
    return f"{name} {record.method}: AVG {score}{about}; {record.seconds:.2f} s"


def divergence_line(found: Divergence) -> str:
    """Where and how training diverged, in one line for a person."""
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
    """What was pooled to train on, in one line for a person."""
    return (
        f"of that up, {pooled.bytes_up / 1e6:.2f} MB are the {pooled.rows} rows of "
        f"{pooled.clients} clients, which one place must have to train on them"
    )


def screening_lines(screening: Screening) -> list[str]:
    """What screening found of clients, and what it could not look at, in lines for a
    person."""
    lines = [_finding_line(f) for f in screening.findings[:_MOST_FINDINGS]]
    more = len(screening.findings) - _MOST_FINDINGS
    if more > 0:
        lines.append(f"and {more} findings more, in results.json")
    return [f"screening: {line}" for line in [*lines, *screening.blind_to]]


def _finding_line(found: Finding) -> str:
    when = f"round {found.round}"
    if found.rounds > 1:
        when += f", and {found.rounds - 1} later"
    fate = "; it was put out" if found.refused else ""
    return f"client {found.client} ({when}): {found.problem}{fate}"


def kept_line(kept: Kept) -> str:
    """Which of two heads a run leaves, and why, in one line for a person."""
    name = "in closed form" if kept.head == "closed_form" else "trained"
    if kept.by == "validation":
        why = (
            f"{_percent(kept.closed_form)}% of the validation rows right in closed "
            f"form, {_percent(kept.trained)}% trained"
        )
    elif kept.by == "confounded":
        why = (
            "labels and domains are confounded: no row a client holds can compare them"
        )
    elif kept.by == "leave_one_out":
        why = "as rows left out speak for; there are no validation rows"
    else:
        why = "there are no validation rows"
    return f"kept: the head {name} ({why})"


def results_table(results: Results) -> str:
    """The table that a run prints at its end.

    One row for each domain (a star marks those that no client holds), then AVG and
    STD over domains, all in percent; then what was sent (1 MB = 10^6 bytes) and how
    long it took; then where training diverged or the run broke off, if it did. A number
    that does not exist is shown as "-".
    """
    head, rows, summary = _cells(results)
    return Lines([*_aligned(head, rows, summary), *_remarks(results)])


def results_html(results: Results) -> str:
    """What `results_table` says, as an HTML table and a paragraph."""
    head, rows, summary = _cells(results)
    lines = [_row("th", head), *(_row("td", row) for row in [*rows, *summary])]
    remarks = "<br>".join(map(as_html, _remarks(results)))
    return "\n".join(["<table>", *lines, "</table>", f"<p>{remarks}</p>"])


def _row(tag: str, cells: tuple[str, ...]) -> str:
    inner = "".join(f"<{tag}>{as_html(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inner}</tr>"


def _cells(results: Results) -> tuple[tuple, list[tuple], list[tuple]]:
    """Titles, a row for each domain, and the rows AVG and STD, all as texts."""
    columns = _columns(results)
    averages = [average(scores) for _, scores in columns]
    rows = [
        (_marked(domain, results), *(_percent(s.get(domain)) for _, s in columns))
        for domain in results.domains
    ]
    summary = [
        ("AVG", *(_percent(avg) for avg, _ in averages)),
        ("STD", *(_percent(std) for _, std in averages)),
    ]
    return ("accuracy in %", *(title for title, _ in columns)), rows, summary


def _remarks(results: Results) -> list[str]:
    """What stands below the table, a line each."""
    final, lines = results.final, []
    if results.unseen_domains:
        lines.append("* unseen: held by no client")
    lines.append(
        f"sent {final.bytes_up / 1e6:.2f} MB up, {final.bytes_down / 1e6:.2f} MB down"
        f"{' (round 0 included)' if results.round0 else ''}; {final.seconds:.1f} s"
    )
    if results.pooled is not None:
        lines.append(pooled_line(results.pooled))
    if final.kept is not None:
        lines.append(kept_line(final.kept))
    if final.scored == "clients":
        others = "; unseen domains: the global one" if results.unseen_domains else ""
        lines.append(_SCORED_OWN + others)
    if results.privacy is not None:
        lines.append(privacy_line(results.privacy))
    lines += screening_lines(results.screening)
    if results.diverged is not None:
        lines.append(divergence_line(results.diverged))
    if results.stopped_early is not None:
        lines.append(f"stopped early, after round {results.stopped_early}")
    if results.status != "finished":
        done = results.rounds[-1].round if results.rounds else 0
        lines.append(f"{results.status} after round {done}")
    return lines


def _columns(results: Results) -> list[tuple[str, dict[str, float | None]]]:
    """Title and accuracies of each head that the run scored at its end."""
    columns, closed_form = [], results.closed_form
    if closed_form is not None:
        columns.append((f"closed form {closed_form.method}", closed_form.accuracy))
    evaluated = [record for record in results.rounds if record.evaluated]
    if evaluated or not (columns or results.calibrated):
        trained = summarise(results.rounds)
        last = evaluated[-1] if evaluated else None
        columns += [
            (f"round {last.round}" if last else "last round", last and last.accuracy),
            (f"mean of last {len(trained.rounds)} evaluated", trained.accuracy),
        ]
    chosen = results.final.chosen
    if chosen is not None:
        columns.append((f"round {chosen.round} by {chosen.key}", chosen.accuracy))
    if results.calibrated is not None:
        title = f"calibrated {results.calibrated.method}"
        columns.append((title, results.calibrated.accuracy))
    return [(title, scores or {}) for title, scores in columns]


def metrics_csv(results: Results) -> str:
    """One row for each round, floats to the bit; empty cells where not evaluated.

    A head in closed form stands in a row of round 0.

    Columns: round, avg, std, loss, seconds, bytes_up, bytes_down and, for each
    domain, accuracy_<domain>. Accuracies are fractions in [0, 1].
    """
    names = ["round", "avg", "std", "loss", "seconds", "bytes_up", "bytes_down"]
    lines = [names + [f"accuracy_{domain}" for domain in results.domains]]
    for record in (results.closed_form, *results.rounds):
        if record is not None:
            scores = record.accuracy or {}
            row = [getattr(record, name) for name in names]
            lines.append(row + [scores.get(domain) for domain in results.domains])
    return csv_text(lines)


def csv_text(lines: Iterable[Sequence]) -> str:
    """Lines of cells as CSV. Texts are printable, and an apostrophe stands before one
    that a spreadsheet would take for a formula."""
    text = io.StringIO()
    rows = (map(_csv_cell, line) for line in lines)
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _csv_cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = printable(value, LINE)
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def _marked(domain: str, results: Results) -> str:
    star = " *" if domain in results.unseen_domains else ""
    return f"{printable(domain)}{star}"


def _aligned(head: tuple, rows: list, summary: list) -> list[str]:
    names = [head[0], *(row[0] for row in rows + summary)]
    widths = [max(map(len, names)), *(max(len(title), 6) for title in head[1:])]

    def line(cells):
        right = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:]))
        return "  ".join([cells[0].ljust(widths[0]), *right])

    rule = "-" * (sum(widths) + 2 * len(widths) - 2)
    return [line(head), rule, *map(line, rows), rule, *map(line, summary), rule]


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{100 * fraction:.2f}"
