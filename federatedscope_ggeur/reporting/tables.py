"""Write all tables of the package: as aligned text, as HTML, and as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from federatedscope_ggeur.printable import LINE, as_html, printable

# A spreadsheet reads a text that begins with one of these characters as a formula.
# The last four are their full-width forms.
_FORMULA = re.compile(r"\s*[-=+@\uff0d\uff1d\uff0b\uff20]")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def text_table(
    *blocks: Sequence[Sequence[str]], left: Collection[int] = (0,), ruled: bool = False
) -> list[str]:
    """Rows of printable cells as lines of text with aligned columns.

    Two spaces separate columns.

    Parameters
    ----------
    *blocks : sequences of rows, all with equally many cells
        A column is equally wide in all blocks.
    left : collection of int
        The columns that are aligned left; all others are aligned right.
    ruled : bool
        Draw a line below each block.
    """
    widths = [max(map(len, column)) for column in zip(*chain(*blocks))]

    def line(row: Sequence[str]) -> str:
        cells = (
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        )
        return "  ".join(cells).rstrip()

    rule = ["-" * (sum(widths) + 2 * len(widths) - 2)] if ruled else []
    return [text for block in blocks for text in [*map(line, block), *rule]]


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table with the column titles `head` above the `rows`."""
    lines = [_row("th", head), *(_row("td", row) for row in rows)]
    return "\n".join(["<table>", *lines, "</table>"])


def _row(tag: str, cells: Sequence[str]) -> str:
    inner = "".join(f"<{tag}>{as_html(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inner}</tr>"


def csv_text(lines: Iterable[Sequence]) -> str:
    """Lines of cells as CSV, with all texts made printable.

    A text that a spreadsheet would read as a formula gets an apostrophe in front.
    """
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
