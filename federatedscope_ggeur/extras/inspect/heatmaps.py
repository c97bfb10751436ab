"""Draw matrices of numbers, with a label for every row and column."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, StrMethodFormatter

from federatedscope_ggeur.reporting.plots import shortened
from federatedscope_ggeur.reporting.tables import write_figure

_DPI = 150
_FONT = 7.0
_INCH = 1 / 72  # of a point
_LETTER = 0.62 * _FONT * _INCH
_LINE = 1.35 * _FONT * _INCH
_CHARACTERS, _TITLE = 26, 120
_MOST_NUMBERS = 1200
_SMALLEST = (3.5, 1.2)
_BAR = 0.16  # inches: the width of the colour bar
_SCALE_HEIGHT = 6.0  # inches, at most


def draw_heatmap(
    path: str | os.PathLike,
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    row_title: str,
    column_title: str,
    scale_title: str,
    largest: float | None = None,
) -> None:
    """Draw a matrix of numbers as a picture, with one cell for each entry.

    The picture grows with the matrix, so that each row and column has a readable label.
    Numbers are written into the cells if there are at most 1,200. The ending of `path`
    decides the format. The same numbers give the same bytes.

    Parameters
    ----------
    path : path of the file
    values : array of shape [R, C], not negative
        Counts (integers) are coloured on a logarithmic scale; 0 stays white. Floats are
        coloured from 0 to `largest`; NaN stays white.
    rows, columns : sequences of str, of lengths R and C
    title, row_title, column_title, scale_title : str
    largest : float, optional
        The upper end of the colour scale for floats. By default the largest value.

    Raises
    ------
    ConfigError
        The file cannot be written. Then no part of the file remains.
    """
    counts = values.dtype.kind in "iu"
    texts = _texts(values, counts)
    rows, columns = (
        [shortened(name, _CHARACTERS) for name in names] for names in (rows, columns)
    )
    width = _cell_width(texts, columns)
    wide = max(_SMALLEST[0], width * len(columns))
    high = max(_SMALLEST[1], 1.5 * _LINE * len(rows))
    # The cells fill the figure; saving it adds room for what stands around them.
    figure = Figure((wide, high), dpi=_DPI, facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    shown = np.ma.masked_where(values == 0 if counts else np.isnan(values), values)
    norm = _norm(shown, counts, largest)
    image = axes.imshow(shown, cmap="YlGnBu", norm=norm, aspect="auto")
    # A name may hold "$", which matplotlib would read as a formula.
    look = {"fontsize": _FONT, "parse_math": False}
    # Labels lie along the axis only where they fit between their neighbours.
    turned = max(map(len, columns)) * _LETTER > wide / len(columns)
    rotation = 90 if turned else 0
    axes.set_xticks(range(len(columns)), columns, rotation=rotation, **look)
    axes.set_yticks(range(len(rows)), rows, **look)
    axes.tick_params(length=2)
    above = {"fontsize": _FONT + 2, "parse_math": False}
    beside = {"fontsize": _FONT + 1, "parse_math": False}
    axes.set_title(shortened(title, _TITLE), **above)
    axes.set_xlabel(shortened(column_title, _TITLE), **beside)
    axes.set_ylabel(shortened(row_title, _TITLE), **beside)
    _draw_grid(axes, values.shape)
    place = (1 + _BAR / wide, 0, _BAR / wide, min(1.0, _SCALE_HEIGHT / high))
    bar = figure.colorbar(image, cax=axes.inset_axes(place))
    if counts:
        bar.locator = LogLocator(subs=(1, 2, 5))
        bar.formatter = StrMethodFormatter("{x:,.0f}")
        bar.minorticks_off()
    bar.set_label(scale_title, fontsize=_FONT)
    bar.ax.tick_params(labelsize=_FONT)
    if texts is not None:
        _write_numbers(axes, texts, norm(shown))
    write_figure(path, figure, bbox_inches="tight", pad_inches=0.1)


def _texts(values: np.ndarray, counts: bool) -> list[list[str]] | None:
    """The texts of the cells; None if there are too many cells."""
    if values.size > _MOST_NUMBERS:
        return None
    if counts:
        return [[str(v) if v else "" for v in row] for row in values.tolist()]
    return [["" if v != v else f"{v:.1f}" for v in row] for row in values.tolist()]


def _cell_width(texts, columns: Sequence[str]) -> float:
    """The width of a cell in inches: room for its number, or for a turned label."""
    letters = max((len(t) for row in texts or () for t in row), default=0)
    width = max(1.3 * _LINE, (letters + 1) * _LETTER)
    # Few columns leave room for labels that are not turned.
    straight = (max(map(len, columns)) + 1) * _LETTER
    return max(width, straight) if len(columns) * straight < 8 else width


def _norm(shown, counts: bool, largest: float | None):
    highest = float(shown.max()) if shown.count() else 1.0
    if counts:
        return LogNorm(1, max(highest, 2.0))
    return Normalize(0, largest or highest or 1.0)


def _draw_grid(axes, shape: tuple[int, int]) -> None:
    high, wide = (np.arange(1, size) - 0.5 for size in shape)
    lines = {"colors": "0.85", "linewidth": 0.4}
    axes.hlines(high, -0.5, shape[1] - 0.5, **lines)
    axes.vlines(wide, -0.5, shape[0] - 0.5, **lines)
    axes.set(xlim=(-0.5, shape[1] - 0.5), ylim=(shape[0] - 0.5, -0.5))


def _write_numbers(axes, texts: list[list[str]], shades) -> None:
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            if text:
                colour = "white" if shades[i, j] > 0.55 else "black"
                axes.text(
                    j, i, text, ha="center", va="center", color=colour, size=_FONT - 0.5
                )
