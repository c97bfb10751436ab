"""Write a comparison as one HTML page that needs no other file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from federatedscope_ggeur.printable import as_html

from .pictures import Picture, inline_svg
from .sheets import Sheet, SheetCell, across_sheets, explained, sheets
from .table import Table

_STYLE = Path(__file__).with_suffix(".css").read_text("utf-8").rstrip()
# The page loads nothing and runs nothing, whatever names the runs contain.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
#: A table with more columns than this is wider than a telephone.
_FEW = 3
_TAGS = {"": ("", ""), "best": ("<strong>", "</strong>"), "top": ("<em>", "</em>")}


def as_page(
    title: str,
    tables: Sequence[Table],
    notes: Sequence[str],
    target: float | None,
    pictures: Sequence[Picture] = (),
    more: Sequence[Sheet] = (),
) -> str:
    """Make the whole page: tables, figures, notes, and a list of the runs.

    Parameters
    ----------
    title : str
    tables : sequence of Table
    notes : sequence of str
        The notes on all tables together.
    target : float or None
        The AVG that rounds are counted to, if the user gave one.
    pictures : sequence of Picture
    more : sequence of Sheet
        More sheets behind the tables, such as a paper's figures.
    """
    parts = [f"<h1>{as_html(title)}</h1>", *map(sheet_html, across_sheets(tables))]
    for number, table in enumerate(tables):
        parts.append(f"<section><h2>{as_html(table.title)}</h2>")
        parts.append(_table(table, target))
        parts += [_figure(p) for p in pictures if p.table == number]
        parts.append("</section>")
    parts += [sheet_html(sheet) for sheet in more]
    if notes:
        parts.append(f"<section><h2>Notes</h2>{_list(notes)}</section>")
    parts.append(_runs(tables))
    head = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{as_html(title)}</title>",
        '<link rel="icon" href="data:,">',
        f"<style>\n{_STYLE}\n</style>",
        "</head>",
        "<body>",
        "<main>",
    ]
    return "\n".join([*head, *parts, "</main>", "</body>", "</html>"]) + "\n"


def as_fragment(
    tables: Sequence[Table], notes: Sequence[str], target: float | None
) -> str:
    """The tables and notes as HTML, without a page around them."""
    first = map(sheet_html, across_sheets(tables))
    shown = (_table(table, target) for table in tables)
    return "\n".join([*first, *shown, _list(notes)])


def sheet_html(sheet: Sheet) -> str:
    """One sheet as an HTML table, with its caption and notes."""
    head = "".join(f'<th scope="col">{as_html(title)}</th>' for title in sheet.columns)
    rows = [
        f'<tr><th scope="row">{as_html(name)}</th>{"".join(map(_cell, cells))}</tr>'
        for name, cells in sheet.rows
    ]
    looks = "<strong>bold</strong>", "<em>italic</em>"
    notes = [explained(as_html(note), *looks) for note in sheet.notes]
    return "\n".join(
        [
            f'<div class="wide{" many" * (len(sheet.columns) > _FEW)}"><table>',
            f"<caption><span>{as_html(sheet.title)}</span></caption>",
            f"<thead><tr>{head}</tr></thead>",
            "<tbody>",
            *rows,
            "</tbody>",
            "</table></div>",
            '<ul class="notes">',
            *(f"<li>{note}</li>" for note in notes),
            "</ul>",
        ]
    )


def _table(table: Table, target: float | None) -> str:
    shown = [sheet_html(sheet) for sheet in sheets(table, target)]
    return "\n".join([*shown, _list(table.notes)])


def _cell(cell: SheetCell) -> str:
    before, after = _TAGS[cell.mark]
    behind = f" <small>{as_html(cell.behind)}</small>" if cell.behind else ""
    return f"<td>{before}{as_html(cell.text)}{after}{behind}</td>"


def _list(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{as_html(note)}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _figure(picture: Picture) -> str:
    return (
        f"<figure>\n{inline_svg(picture)}\n"
        f"<figcaption>{as_html(picture.caption)}</figcaption></figure>"
    )


def _runs(tables: Sequence[Table]) -> str:
    """A list of all runs with their folders, so that each number can be found."""
    rows = [
        f'<tr><th scope="row">{as_html(row.name)}</th><td>{seed}</td>'
        f"<td><code>{as_html(run.folder)}</code></td></tr>"
        for table in tables
        for row in table.rows.values()
        for seed, run in row.runs.items()
    ]
    return "\n".join(
        [
            "<section><h2>Runs</h2>",
            f"<details><summary>the folders of {len(rows)} runs</summary>",
            '<div class="wide"><table>',
            '<thead><tr><th scope="col">row</th><th scope="col">seed</th>'
            '<th scope="col">folder</th></tr></thead>',
            "<tbody>",
            *rows,
            "</tbody>",
            "</table></div></details></section>",
        ]
    )
