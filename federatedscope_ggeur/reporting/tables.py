"""Write all tables of the package: as aligned text, as HTML, and as CSV.

Figures are written as PNG, or as SVG and PDF for print.
"""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from federatedscope_ggeur.errors import ConfigError, shown
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.printable import LINE, as_html, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


_STYLE = {
    "svg.fonttype": "path",  # the same letters everywhere
    "svg.hashsalt": "federatedscope-ggeur",  # the same names in every run
    "pdf.fonttype": 42,
    # These override a user's own matplotlibrc.
    "savefig.bbox": None,
    "savefig.dpi": "figure",
    "savefig.facecolor": "auto",
}
#: Metadata that matplotlib would write about the program and the date.
_UNSAID = {
    "svg": ("Date", "Creator", "Format", "Type"),
    "pdf": ("CreationDate", "Creator", "Producer"),
    "png": ("Software",),
}
FORMATS = tuple(_UNSAID)


def read_formats(text: str) -> list[str]:
    """Split a text such as ``"svg,png"`` into a list, with each format once.

    Raises
    ------
    ConfigError
        A format is not one of `FORMATS`.
    """
    formats = list(dict.fromkeys(part.strip() for part in text.split(",")))
    check_formats(formats)
    return formats


def check_formats(formats: Sequence[str]) -> None:
    """Raise `ConfigError` unless there are formats, and all are in `FORMATS`."""
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise ConfigError(
            f"--format: must be one or more of {', '.join(FORMATS)}, with commas; got "
            + (shown(unknown[0]) if unknown else "none")
        )


def figure_bytes(figure: Figure, form: str, **saving: Any) -> bytes:
    """The bytes of `figure` in the format `form`. The same figure gives the same bytes.

    `saving` are more arguments of `Figure.savefig`.

    Raises
    ------
    ConfigError
        `form` is not one of `FORMATS`.
    """
    check_formats([form])
    file, unsaid = io.BytesIO(), dict.fromkeys(_UNSAID[form])
    import matplotlib  # takes half a second

    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # The picture itself shows a box for a character that the font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(file, format=form, metadata=unsaid, **saving)
    return file.getvalue()


def write_figure(path: str | os.PathLike, figure: Figure, **saving: Any) -> None:
    """Write `figure` to `path`, whose ending decides the format.

    Raises
    ------
    ConfigError
        There is no such format, or the file cannot be written. No part of it is left
        then.
    """
    write_atomically(path, figure_bytes(figure, Path(path).suffix[1:], **saving))
