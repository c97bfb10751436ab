"""Turn the tables of a comparison into cells of text, for all output formats.

Write a comparison as aligned text for a terminal, and as Markdown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import fmean
from textwrap import wrap

from federatedscope_ggeur.printable import LINE, markdown, printable
from federatedscope_ggeur.reporting.tables import text_table

from ..study import Study, Tuned
from .labels import Difference, Spread
from .runs import AVG, COSTS, Measure
from .table import (
    CLAIM_FROM,
    Best,
    Mark,
    Row,
    Table,
    across,
    heads_text,
    name_of,
    seeds_text,
)

NONE = "-"


@dataclass(frozen=True)
class SheetCell:
    """A number as text, the text behind it, and whether it is its column's best."""

    text: str
    behind: str = ""
    mark: Mark = ""

    def __str__(self) -> str:
        return f"{self.text} {self.behind}".strip()


@dataclass(frozen=True)
class Sheet:
    """A table of texts, whose first column names the rows.

    Attributes
    ----------
    title : str
    subject : str
        The title of the comparison's table. "" if `title` is enough.
    columns : list of str
        The title of the rows, then one title for each cell of a row.
    rows : list of (str, list of SheetCell)
    notes : list of str
        The notes below the table.
    """

    title: str
    subject: str
    columns: list[str]
    rows: list[tuple[str, list[SheetCell]]]
    notes: list[str] = field(default_factory=list)

    @property
    def full_title(self) -> str:
        """The title with the subject, for a sheet that stands alone."""
        return f"{self.title}: {self.subject}" if self.subject else self.title


#: A column of a sheet: its title, and its cell for a row.
Column = tuple[str, Callable[[Row], SheetCell]]


def _sheet(title: str, table: Table, columns: list[Column], notes: list[str]) -> Sheet:
    """A sheet with a line for each row of the table."""
    rows = [(n, [of(row) for _, of in columns]) for n, row in table.rows.items()]
    titles = [_rows_title(table), *(title for title, _ in columns)]
    return Sheet(title, table.title, titles, rows, notes)


_HEAD: Column = ("head", lambda row: SheetCell(row.head))


def score_sheets(table: Table) -> list[Sheet]:
    """All sheets of one table, but for that of costs."""
    grids = [grid_sheet(table)] if table.columns else []
    differences = [differences_sheet(table)] if table.baselines else []
    return [*grids, scores_sheet(table), *differences]


def sheets(table: Table, target: float | None) -> list[Sheet]:
    """All sheets of one table. `target` is the AVG that rounds are counted to."""
    return [*score_sheets(table), _costs(table, target)]


def overview_sheet(table: Table) -> Sheet:
    """A short sheet: AVG, its standard error, and the bytes of a client."""

    def error(row: Row) -> SheetCell:
        spread = row.spread(AVG)
        share = None if spread is None else spread.error
        return SheetCell(NONE if share is None else f"{100 * share:.2f}")

    def sent(measure: Measure) -> Column:
        return measure.title, lambda row: SheetCell(_cost(row, measure).text)

    seeds = seeds_text(table.rows.values())
    columns: list[Column] = [
        ("accuracy", lambda row: SheetCell(_percents(row.spread(AVG)).text)),
        ("s.e.", error),
        *map(sent, COSTS[:2]),
    ]
    notes = [
        f"accuracy: AVG in %, the mean over domains and over {seeds} "
        f"seed{'s' * (seeds != '1')}; s.e.: its standard error over seeds; "
        "MB: 10^6 bytes of all messages",
        *head_notes(table),
    ]
    return _sheet("Overview", table, columns, notes)


def scores_sheet(table: Table) -> Sheet:
    """A sheet with mean and deviation of each domain, AVG and STD, in percent."""
    bests = {measure: table.best(measure) for measure in table.scores}

    def score(measure: Measure) -> Column:
        best = bests[measure]
        title = _title(measure, table)
        return title, lambda row: _percents(row.spread(measure), best.mark(row.name))

    notes = [
        "accuracy in %: mean ± standard deviation (ddof 1) over seeds, of the score of "
        "each run (docs/results.md, final)"
    ]
    if len(table.domains) > 1:
        notes.append(
            "AVG: mean over domains; STD: their deviation (ddof 0), less is better"
        )
    notes += [*_best_notes(table, list(bests.values())), *head_notes(table)]
    seeds: Column = ("seeds", lambda row: SheetCell(str(len(row.runs))))
    return _sheet("Accuracy", table, [seeds, _HEAD, *map(score, bests)], notes)


def across_sheets(tables: Sequence[Table]) -> list[Sheet]:
    """A sheet of AVG with a column for each data set; none if there is one alone."""
    columns = across(tables)
    if not columns:
        return []
    bests = {id(table): table.best(AVG) for table in tables}
    cells: dict[str, dict[int, SheetCell]] = {}
    for place, (_, table, rows) in enumerate(columns):
        for row in rows:
            mark = bests[id(table)].mark(row.name)
            shown = _percents(row.spread(AVG), mark)
            cells.setdefault(table.point(row), {})[place] = shown
    seeds = seeds_text(row for _, _, rows in columns for row in rows)
    whole = Sheet(
        "AVG on all data sets",
        "",
        [tables[0].first, *(title for title, _, _ in columns)],
        [
            (name, [there.get(i, SheetCell(NONE)) for i in range(len(columns))])
            for name, there in cells.items()
        ],
        [
            f"AVG in %: mean ± standard deviation over seeds; seeds a cell: {seeds}",
            *_best_notes(tables[0], list(bests.values())),
            *head_notes_across(tables),
        ],
    )
    return [whole]


def grid_sheet(table: Table) -> Sheet:
    """A sheet of AVG, with the points of the table's axes `columns` side by side."""
    names, columns, cells = table.grid()
    best = table.best(AVG)

    def cell(name: str, column: str) -> SheetCell:
        row = cells.get((name, column))
        spread = None if row is None else table.rows[row].spread(AVG)
        return _percents(spread, best.mark(row))

    def heads(name: str) -> SheetCell:
        rows = [table.rows[r] for (there, _), r in cells.items() if there == name]
        return SheetCell(heads_text(run for row in rows for run in row.runs.values()))

    seeds = seeds_text(table.rows.values())
    return Sheet(
        f"AVG by {', '.join(table.columns)}",
        table.title,
        [_rows_title(table, table.columns), "head", *columns],
        [(n, [heads(n), *(cell(n, column) for column in columns)]) for n in names],
        [
            f"AVG in %: mean ± standard deviation over seeds; seeds a cell: {seeds}",
            *_best_notes(table, [best]),
            *head_notes(table),
        ],
    )


def differences_sheet(table: Table) -> Sheet:
    """A sheet of AVG minus the baseline's AVG, with intervals and p-values."""
    differences, baselines = table.differences(AVG), table.baselines
    several = len(set(baselines.values())) > 1

    def compared(row: Row) -> SheetCell:
        other = baselines.get(row.name, NONE)
        return SheetCell("baseline" if other == row.name else other)

    def difference(title: str, text: Callable[[Difference], str]) -> Column:
        def cell(row: Row) -> SheetCell:
            one = differences.get(row.name)
            return SheetCell(NONE if one is None else text(one))

        return title, cell

    def is_unknown(row: Row) -> bool:
        one = differences.get(row.name)
        is_compared = baselines.get(row.name, row.name) != row.name
        no_test = is_compared and (one is None or one.p is None)
        return no_test or interval(row.spread(AVG)) == NONE

    columns: list[Column] = [
        _HEAD,
        ("AVG, 95% interval", lambda row: SheetCell(interval(row.spread(AVG)))),
        *[("compared with", compared)] * several,
        difference("seeds", lambda d: str(d.spread.n)),
        difference("AVG, difference", lambda d: f"{100 * d.spread.mean:+.2f}"),
        difference("95% interval", lambda d: interval(d.spread, "+")),
        difference("p (paired t)", lambda d: p_text(d.p)),
        difference("Holm", lambda d: p_text(d.p_holm)),
    ]
    count = sum(1 for one in differences.values() if one.p is not None)
    whom = "the baseline" if several else next(iter(baselines.values()))
    notes = [
        "in percentage points, over the seeds that both rows have; intervals by "
        f"Student's t; p two-sided; Holm: corrected for this table's tests ({count})"
    ]
    if any(is_unknown(row) for row in table.rows.values()):
        notes.append(
            f"{NONE}: fewer than two seeds to compare, or the same number on every seed"
        )
    notes += head_notes(table)
    return _sheet(f"Differences to {whom}, seed by seed", table, columns, notes)


def _costs(table: Table, asked: float | None) -> Sheet:
    def cost(measure: Measure) -> Column:
        return measure.title, lambda row: _cost(row, measure)

    def target(row: Row) -> SheetCell:
        share = table.target(row.name, asked)
        return SheetCell(NONE if share is None else f"{100 * share:g}")

    def reached(row: Row) -> SheetCell:
        share = table.target(row.name, asked)
        if share is None:
            return SheetCell(NONE)
        first = table.rounds(row.name, share)
        text = f"{fmean(first.values()):.1f}" if first else "never"
        some = first and len(first) < len(row.runs)
        return SheetCell(text, f"({len(first)} of {len(row.runs)} seeds)" * bool(some))

    why = (
        "given by --target"
        if asked is not None
        else "the last mean AVG of the baseline, rounded down to whole percents"
        if table.baselines
        else "the last mean AVG, rounded down to whole percents"
    )
    up, down, seconds = map(cost, COSTS)
    rounds: list[Column] = [("to AVG (%)", target), ("rounds to it", reached)]
    notes = [
        "MB: 10^6 bytes, all messages of a run divided by its clients; seconds on "
        "the clock, of all rounds; mean ± standard deviation over seeds",
        "rounds: the first evaluated round with that AVG, mean over the seeds that "
        f"reach it; 0 is the head in closed form; to AVG: {why}",
    ]
    return _sheet("What it takes", table, [_HEAD, up, down, *rounds, seconds], notes)


def study_notes(study: Study) -> list[str]:
    """Notes on the settings that a study tuned, and on its runs that failed."""
    axes = [axis.name for axis in study.axes]
    tuned = [_tuned_note(one, name_of(one.labels, axes)) for one in study.tuned]
    return tuned + [
        f"failed: {name_of(one.labels, axes)}, seed {one.seed}: "
        f"{_one_line(one.problem)}"
        for one in study.failed
    ]


def _tuned_note(tuned: Tuned, name: str) -> str:
    tried = "; ".join(
        f"{settings_text(one.settings)} ({_one_line(one.problem) or _value(one.value)})"
        for one in tuned.tried
    )
    if not tuned.chosen:
        return f"{name}: tuning chose nothing, because every try failed: {tried}"
    return (
        f"{name}: {settings_text(tuned.chosen)}, chosen on the validation split of "
        f"seed {tuned.seed} by {tuned.metric} among {tried}"
    )


def _one_line(problem: str) -> str:
    """The lines of an error's text, joined into one line."""
    return " ".join(problem.split())


def settings_text(settings: dict) -> str:
    """Settings with their values, as text."""
    return ", ".join(f"{key} {value}" for key, value in settings.items()) or "nothing"


def _value(value: float | None) -> str:
    return NONE if value is None else f"{value:.4g}"


def interval(spread: Spread | None, sign: str = "") -> str:
    """The 95% interval of a share as text, in percent."""
    if spread is None or spread.low is None or spread.high is None:
        return NONE
    return f"[{100 * spread.low:{sign}.2f}, {100 * spread.high:{sign}.2f}]"


def p_text(p: float | None) -> str:
    """A p-value as text, with as many digits as a table shows."""
    if p is None:
        return NONE
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _percents(spread: Spread | None, mark: Mark = "") -> SheetCell:
    if spread is None:
        return SheetCell(NONE)
    behind = "" if spread.sd is None else f"± {100 * spread.sd:.2f}"
    return SheetCell(f"{100 * spread.mean:.2f}", behind, mark)


def _cost(row: Row, measure: Measure) -> SheetCell:
    spread = row.spread(measure)
    if spread is None:
        return SheetCell(NONE)
    scale = 1.0 if measure.key == "seconds" else 1e6
    # Three digits of the mean; the deviation gets as many decimals.
    mean = spread.mean / scale
    places = max(0, 2 - math.floor(math.log10(mean))) if mean > 0 else 0
    behind = f"± {spread.sd / scale:.{places}f}" if spread.sd else ""
    return SheetCell(f"{mean:.{places}f}", behind)


def _best_notes(table: Table, bests: Sequence[Best]) -> list[str]:
    others = " and ".join(table.others)
    among = f" among rows of one {others}" if others else ""
    notes = []
    if any(best.tested for best in bests):
        notes.append(
            f"best: the best mean of a column{among}, and every row not significantly "
            "worse (paired t-test over common seeds, Holm, 0.05)"
        )
    if any(best.rows - best.tested for best in bests):
        notes.append(
            f"top: the best mean of a column{among}; with fewer than {CLAIM_FROM} "
            "common seeds no row is claimed to be better than another"
        )
    return notes


def head_notes(table: Table) -> list[str]:
    """Notes on rows whose score is not that of their own head.

    Such a score is of each client's own model, or of a head that other rows share.
    """
    notes = []
    if own := table.scored_by_clients:
        notes.append(
            f"scored by each client's own model, on its own test rows: {'; '.join(own)}"
        )
    for names, seeds in table.same_heads():
        on = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        notes.append(
            f"equal heads, to the bit, on {on}: {'; '.join(names)}. These rows share "
            "one head, so their scores do not compare what they trained"
        )
    return notes


def head_notes_across(tables: Sequence[Table]) -> list[str]:
    """The notes of `head_notes` for one sheet on several data sets, which they name."""
    titles: dict[str, list[str]] = {}
    for table in tables:
        for note in head_notes(table):
            titles.setdefault(note, []).append(table.title)
    return [
        note if len(of) == len(tables) else f"{'; '.join(of)}: {note}"
        for note, of in titles.items()
    ]


def _title(measure: Measure, table: Table) -> str:
    unseen = measure.domain and measure.domain in table.unseen
    return f"{measure.title} (unseen)" if unseen else measure.title


def _rows_title(table: Table, but: Sequence[str] = ()) -> str:
    return ", ".join(axis.name for axis in table.axes if axis.name not in but)


_STARS = {"": " ", "best": "*", "top": "~"}
_EMPHASIS = {"": "", "best": "**", "top": "_"}
_WIDE = 88  # the most letters in a line of notes


def as_text(tables: Sequence[Table], notes: Sequence[str]) -> str:
    """Make aligned tables for a terminal.

    ``*`` marks the best of a column, or ``~`` if nothing is tested. Bytes, rounds and
    seconds are only in the report.
    """
    parts = []
    for table in tables:
        parts += map(sheet_text, score_sheets(table))
        parts += _listed(table.notes)
    parts += map(sheet_text, across_sheets(tables))
    return "\n\n".join([*parts, *_listed(notes)]) + "\n"


def _listed(notes: Sequence[str]) -> list[str]:
    lines = [line for note in notes for line in _wrapped(f"note: {note}")]
    return ["\n".join(lines)] if lines else []


def _wrapped(note: str) -> list[str]:
    return wrap(printable(note, LINE), _WIDE, subsequent_indent="  ")


def explained(note: str, best: str, top: str) -> str:
    """`note`; if it explains a mark, that begins as the mark looks."""
    for word, look in (("best:", best), ("top:", top)):
        if note.startswith(word):
            return f"{look}:{note.removeprefix(word)}"
    return note


def sheet_text(sheet: Sheet) -> str:
    """One sheet as aligned text."""
    marked = any(cell.mark for _, cells in sheet.rows for cell in cells)
    rows = [
        [
            printable(name),
            *(f"{printable(c)}{_STARS[c.mark] if marked else ''}" for c in cells),
        ]
        for name, cells in sheet.rows
    ]
    first, *others = map(printable, sheet.columns)
    titles = [first, *(title + " " * marked for title in others)]
    notes = [_wrapped(explained(note, "*", "~")) for note in sheet.notes]
    body = [*text_table([titles], rows, ruled=True), *chain.from_iterable(notes)]
    return "\n".join([printable(sheet.full_title, LINE), *body])


def as_markdown(
    tables: Sequence[Table], notes: Sequence[str], target: float | None
) -> str:
    """Turn the tables of a comparison into Markdown text.

    The best of a column is bold, or italic if nothing is tested.
    """
    parts = [*map(sheet_markdown, across_sheets(tables))]
    for table in tables:
        parts.append(f"## {markdown(table.title)}")
        parts += [sheet_markdown(sheet) for sheet in sheets(table, target)]
        if table.notes:
            parts.append(_bullets(table.notes))
    if notes:
        parts.append("## Notes\n\n" + _bullets(notes))
    return "\n\n".join(parts) + "\n"


def sheet_markdown(sheet: Sheet) -> str:
    """One sheet in Markdown, under its title."""
    lines = [
        f"### {markdown(sheet.title)}",
        "",
        _line(map(markdown, sheet.columns)),
        _line(["---", *["---:"] * (len(sheet.columns) - 1)]),
        *(_line([markdown(name), *map(_cell, cells)]) for name, cells in sheet.rows),
        "",
    ]
    notes = [explained(markdown(n), "**bold**", "_italic_") for n in sheet.notes]
    return "\n".join([*lines, "  \n".join(notes)])


def _bullets(notes: Sequence[str]) -> str:
    # An empty bullet would make the lines below it part of the one above.
    return "\n".join(f"- {markdown(note) or '&nbsp;'}" for note in notes)


def _line(cells) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(cell: SheetCell) -> str:
    emphasis = _EMPHASIS[cell.mark]
    return f"{emphasis}{markdown(cell.text)}{emphasis} {markdown(cell.behind)}".strip()
