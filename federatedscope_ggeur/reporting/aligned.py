"""Tables of aligned text, as all that is printed for a person writes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain


def text_table(
    *blocks: Sequence[Sequence[str]],
    left: Collection[int] = (0,),
    ruled: bool = False,
) -> list[str]:
    """Rows of printable cells as lines with aligned columns, two spaces apart.

    Parameters
    ----------
    *blocks : sequences of rows, all with equally many cells
        Whatever their number, all rows share the columns' widths.
    left : collection of int
        The columns that stand left; all others stand right.
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
