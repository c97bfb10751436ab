"""Write a comparison as LaTeX tables in a paper's style, one for each data set."""

from __future__ import annotations

from collections.abc import Sequence

from .latex import PREAMBLE, caption_of, environment, escaped, label_of
from .pictures import WIDTHS, Picture
from .runs import AVG, STD, Measure
from .sheets import head_notes, head_notes_across
from .table import Row, Table, across, heading, seeds_text

#: A table with more columns of numbers than this takes both columns of the page.
_NARROW = 3
#: A table with more columns than this shows only the AVG of each setting.
_WIDE = 14
_MARKED = {0: r"\textbf{{{}}}", 1: r"\underline{{{}}}"}

#: The rows of a table by name and setting.
Cells = dict[tuple[str, str], Row]


def as_paper_tables(tables: Sequence[Table], title: str, only_avg: bool) -> str:
    """Make a LaTeX ``table`` for each data set, or a ``table*`` if it is wide.

    Rows are the points of the first axis. Columns are grouped by setting, that is by
    the points of all other axes. The best mean of a column is bold and the second best
    underlined. Rows that pool all data do not count. There are no tests of
    significance. Notes below a table name rows whose scores do not compare. `title` is
    that of the studies.

    Several data sets have one more table of AVG, with a column for each set and
    setting. With `only_avg` it is the only one.
    """
    taken: set[str] = set()
    columns = across(tables)
    parts = []
    if columns:
        cells = {(t.point(r), name): r for name, t, rows in columns for r in rows}
        notes = head_notes_across(tables)
        made = _environment(tables[0].first, cells, [AVG], title, taken, notes)
        parts.append(made)
    if not only_avg or not columns:
        for table in tables:
            cells = {
                (table.point(row), heading(row.labels, table.others)): row
                for row in table.rows.values()
            }
            measures = [measure for measure in table.scores if measure is not STD]
            if only_avg or len(measures) * len({s for _, s in cells}) > _WIDE:
                measures = [AVG]
            about = f"{title}. {table.title}" if title else table.title
            notes = head_notes(table)
            made = _environment(table.first, cells, measures, about, taken, notes)
            parts.append(made)
    return "\n\n".join([PREAMBLE, *parts]) + "\n"


def as_document(title: str, pictures: Sequence[Picture], form: str) -> str:
    """A page for LaTeX with ``table.tex`` and all pictures, in files of this form."""
    parts = [
        r"\documentclass[twocolumn]{article}",
        r"\usepackage{booktabs}",
        r"\usepackage{graphicx}",
        r"\begin{document}",
        rf"\section*{{{escaped(title)}}}",
        r"\input{table.tex}",
    ]
    for picture in pictures:
        wide = picture.figure.get_figwidth() > WIDTHS["one"]
        kind = "figure*" if wide else "figure"
        parts += [
            rf"\begin{{{kind}}}[t]",
            r"\centering",
            rf"\includegraphics[width=\linewidth]{{{picture.name}.{form}}}",
            rf"\caption{{{escaped(picture.caption)}}}",
            rf"\label{{fig:{picture.name.replace('_', '-')}}}",
            rf"\end{{{kind}}}",
        ]
    return "\n".join([*parts, r"\end{document}"]) + "\n"


def _environment(
    first: str,
    cells: Cells,
    measures: list[Measure],
    title: str,
    taken: set[str],
    notes: list[str],
) -> str:
    names = list(dict.fromkeys(name for name, _ in cells))
    settings = list(dict.fromkeys(setting for _, setting in cells))
    columns = [(setting, measure) for setting in settings for measure in measures]
    marks = {column: _marks(cells, names, *column) for column in columns}
    body = []
    for name in names:
        texts = [_cell(cells, name, c, marks[c].get(name)) for c in columns]
        body.append(" & ".join([escaped(name), *texts]) + r" \\")
    return environment(
        "l" + "c" * len(columns),
        _heads(first, settings, measures),
        body,
        caption=_caption(title, list(cells.values()), measures),
        kind="table" if len(columns) <= _NARROW else "table*",
        place="t",
        label=label_of(title, taken),
        notes=notes,
    )


def _heads(first: str, settings: list[str], measures: list[Measure]) -> list[str]:
    """The title lines: settings in the first line, domains and AVG below them."""
    width = len(measures)
    titles = [escaped(measure.title) for measure in measures] * len(settings)
    if settings == [""]:
        return [" & ".join([escaped(first), *titles]) + r" \\"]
    if width == 1:
        return [" & ".join([escaped(first), *map(escaped, settings)]) + r" \\"]
    above = [rf"\multicolumn{{{width}}}{{c}}{{{escaped(name)}}}" for name in settings]
    rules = [
        rf"\cmidrule(lr){{{2 + place * width}-{1 + (place + 1) * width}}}"
        for place in range(len(settings))
    ]
    return [
        " & ".join(["", *above]) + r" \\",
        " ".join(rules),
        " & ".join([escaped(first), *titles]) + r" \\",
    ]


def _marks(
    cells: Cells, names: list[str], setting: str, measure: Measure
) -> dict[str, int]:
    """The rows with the best rounded mean (marked 0) and the second best (marked 1)."""
    means = {
        name: round(100 * spread.mean, 2)
        for name in names
        if (row := cells.get((name, setting))) is not None and not row.pools
        if (spread := row.spread(measure)) is not None
    }
    if len(means) < 2:
        return {}
    ordered = sorted(set(means.values()), reverse=True)
    return {n: ordered.index(m) for n, m in means.items() if ordered.index(m) < 2}


def _cell(
    cells: Cells, name: str, column: tuple[str, Measure], mark: int | None
) -> str:
    setting, measure = column
    row = cells.get((name, setting))
    spread = None if row is None else row.spread(measure)
    if spread is None:
        return "-"
    mean = f"{100 * spread.mean:.2f}"
    shown = mean if mark is None else _MARKED[mark].format(mean)
    if spread.error is None:
        return shown
    return rf"{shown} {{\scriptsize$\pm${100 * spread.error:.2f}}}"


def _caption(title: str, rows: list[Row], measures: list[Measure]) -> str:
    seeds = seeds_text(rows)
    several = seeds != "1"
    what = "AVG, the mean over domains" if measures == [AVG] else "Accuracy by domain"
    error = r", $\pm$ its standard error" if several else ""
    pooled = any(row.pools for row in rows)
    bound = " Rows pooled in one place are not compared." if pooled else ""
    return (
        f"{caption_of(title, what)}, in \\%: mean over {seeds} "
        f"seed{'s' if several else ''}{error}. Best in bold, second underlined.{bound}"
    )
