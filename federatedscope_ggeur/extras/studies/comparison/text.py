"""Write a comparison as aligned text for a terminal, and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import wrap

from federatedscope_ggeur.printable import LINE, markdown, printable
from federatedscope_ggeur.reporting.tables import text_table

from .sheets import (
    Sheet,
    SheetCell,
    across_sheet,
    differences_sheet,
    grid_sheet,
    scores_sheet,
    sheets,
)
from .table import Table

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
        shown = [grid_sheet(table)] if table.columns else []
        shown.append(scores_sheet(table))
        if table.baselines:
            shown.append(differences_sheet(table))
        for sheet in shown:
            parts.append(sheet_text(sheet))
        parts += _listed(table.notes)
    whole = across_sheet(tables)
    parts += [sheet_text(whole)] if whole else []
    return "\n\n".join([*parts, *_listed(notes)]) + "\n"


def _listed(notes: Sequence[str]) -> list[str]:
    lines = [line for note in notes for line in _wrapped(f"note: {note}")]
    return ["\n".join(lines)] if lines else []


def _wrapped(note: str) -> list[str]:
    return wrap(printable(note, LINE), _WIDE, subsequent_indent="  ")


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
    notes = [re.sub("^best:", "*:", re.sub("^top:", "~:", n)) for n in sheet.notes]
    notes = [line for note in notes for line in _wrapped(note)]
    body = [*text_table([titles], rows, ruled=True), *notes]
    return "\n".join([printable(sheet.full_title, LINE), *body])


def as_markdown(
    tables: Sequence[Table], notes: Sequence[str], target: float | None
) -> str:
    """Turn the tables of a comparison into Markdown text.

    The best of a column is bold, or italic if nothing is tested.
    """
    whole = across_sheet(tables)
    parts = [sheet_markdown(whole)] if whole else []
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
    notes = [
        re.sub("^best:", "**bold**:", re.sub("^top:", "_italic_:", markdown(note)))
        for note in sheet.notes
    ]
    return "\n".join([*lines, "  \n".join(notes)])


def _bullets(notes: Sequence[str]) -> str:
    # An empty bullet would make the lines below it part of the one above.
    return "\n".join(f"- {markdown(note) or '&nbsp;'}" for note in notes)


def _line(cells) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(cell: SheetCell) -> str:
    emphasis = _EMPHASIS[cell.mark]
    return f"{emphasis}{markdown(cell.text)}{emphasis} {markdown(cell.behind)}".strip()
