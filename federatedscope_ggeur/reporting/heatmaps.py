"""Matrices of numbers as pictures with a label for every row and column."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from federatedscope_ggeur.reporting.formats import write_figure
from federatedscope_ggeur.reporting.plots import shortened

_DPI = 150
_FONT = 7.0
_INCH = 1 / 72  # of a point
_LETTER = 0.62 * _FONT * _INCH
_LINE = 1.35 * _FONT * _INCH
_CHARACTERS, _TITLE = 26, 120
_MOST_NUMBERS = 1200
_MANY = 30
_SMALLEST = (4.5, 2.0)
_EMPTY = "#ffffff"


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
    """Draw a matrix, one cell an entry, in the format that the ending of `path` names;
    the same numbers give the same bytes.

    The picture grows with the matrix, so that every row and column has a label that
    can be read; up to 1,200 cells hold their numbers.

    Parameters
    ----------
    path : path of the file
    values : array of shape [R, C], not negative
        Counts (integers), coloured on a logarithmic scale, 0 left white; or floats,
        coloured from 0 to `largest`, NaN left white.
    rows, columns : sequences of str, of lengths R and C
    title, row_title, column_title, scale_title : str
    largest : float, optional
        By default the largest value.

    Raises
    ------
    ConfigError
        If `path` cannot be written; nothing is left behind.
    """
    counts = values.dtype.kind in "iu"
    texts = _texts(values, counts)
    title, row_title, column_title = (
        shortened(text, _TITLE) for text in (title, row_title, column_title)
    )
    rows, columns = (
        [shortened(name, _CHARACTERS) for name in names] for names in (rows, columns)
    )
    width = _cell_width(texts, columns)
    # Labels lie along the axis only where they fit between their neighbours.
    turned = max(map(len, columns)) * _LETTER > width
    figure = Figure(
        _size(width, rows, columns, turned, title),
        dpi=_DPI,
        layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08),
        facecolor="white",
    )
    axes = figure.add_subplot()
    shown = np.ma.masked_where(values == 0 if counts else np.isnan(values), values)
    norm = _norm(shown, counts, largest)
    image = axes.imshow(shown, cmap="YlGnBu", norm=norm, aspect="auto")
    axes.set_facecolor(_EMPTY)
    # In a large picture the labels are too far from the cells to stand on one side.
    high, wide = len(rows) > _MANY, len(columns) > _MANY
    rotation = 90 if turned else 0
    axes.set_title(title, fontsize=_FONT + 2, parse_math=False)
    _add_scale(figure, axes, image, scale_title)
    if high or wide:
        # Room is made for the longest labels alone: to measure all of them again and
        # again takes most of the time.
        _label(axes.xaxis, columns, column_title, rotation, high, _outer(columns))
        _label(axes.yaxis, rows, row_title, 0, wide, _outer(rows))
        layout = figure.get_layout_engine()
        for _ in range(2):
            layout.execute(figure)
        figure.set_layout_engine("none")
    _label(axes.xaxis, columns, column_title, rotation, high, range(len(columns)))
    _label(axes.yaxis, rows, row_title, 0, wide, range(len(rows)))
    _draw_grid(axes, values.shape)
    if texts is not None:
        _write_numbers(axes, texts, norm(shown))
    write_figure(path, figure)


def _texts(values: np.ndarray, counts: bool) -> list[list[str]] | None:
    """What stands in the cells; None where there are too many."""
    if values.size > _MOST_NUMBERS:
        return None
    if counts:
        return [[str(v) if v else "" for v in row] for row in values.tolist()]
    return [["" if v != v else f"{v:.1f}" for v in row] for row in values.tolist()]


def _cell_width(texts, columns: Sequence[str]) -> float:
    """Inches: room for the numbers, else for one line of a turned label."""
    letters = max((len(t) for row in texts or () for t in row), default=0)
    width = max(1.3 * _LINE, (letters + 1) * _LETTER)
    # Few columns have room for labels that need not be turned.
    straight = (max(map(len, columns)) + 1) * _LETTER
    return max(width, straight) if len(columns) * straight < 8 else width


def _size(width, rows, columns, turned: bool, title: str) -> tuple[float, float]:
    sides = 2 if len(columns) > _MANY else 1
    left = 0.6 + sides * max(map(len, rows)) * _LETTER
    sides = 2 if len(rows) > _MANY else 1
    below = 0.9 + sides * (max(map(len, columns)) * _LETTER if turned else _LINE)
    wide = max(_SMALLEST[0], left + len(columns) * width, len(title) * 1.4 * _LETTER)
    high = below + len(rows) * 1.5 * _LINE
    return wide * 1.06 + 0.8, max(_SMALLEST[1], high)


def _norm(shown, counts: bool, largest: float | None):
    found = float(shown.max()) if shown.count() else 1.0
    if counts:
        return LogNorm(1, max(found, 2.0))
    return Normalize(0, largest or found or 1.0)


def _outer(names: Sequence[str]) -> list[int]:
    """The first, the last and the longest."""
    longest = max(range(len(names)), key=lambda i: len(names[i]))
    return sorted({0, len(names) - 1, longest})


def _label(
    axis,
    names: Sequence[str],
    title: str,
    rotation: int,
    twice: bool,
    places: Sequence[int],
) -> None:
    # A name may hold "$", which would be read as a formula.
    style = {"rotation": rotation, "fontsize": _FONT, "parse_math": False}
    axis.set_ticks(list(places))
    far = "labeltop" if axis.axis_name == "x" else "labelright"
    axis.set_tick_params(length=2, **{far: twice})
    axis.set_ticklabels([names[place] for place in places], **style)
    axis.set_label_text(title, fontsize=_FONT + 1, parse_math=False)


def _draw_grid(axes, shape: tuple[int, int]) -> None:
    high, wide = (np.arange(1, size) - 0.5 for size in shape)
    lines = {"colors": "0.85", "linewidth": 0.4}
    axes.hlines(high, -0.5, shape[1] - 0.5, **lines)
    axes.vlines(wide, -0.5, shape[0] - 0.5, **lines)
    axes.set(xlim=(-0.5, shape[1] - 0.5), ylim=(shape[0] - 0.5, -0.5))


def _add_scale(figure, axes, image, title: str) -> None:
    wide, high = figure.get_size_inches()
    place = {"fraction": 0.3 / wide, "pad": 0.1 / wide, "shrink": min(1.0, 6.0 / high)}
    aspect = max(4.0, min(high, 6.0) / 0.16)
    bar = figure.colorbar(image, ax=axes, aspect=aspect, **place)
    if isinstance(image.norm, LogNorm):
        bar.minorticks_off()
        ticks = _ticks(image.norm.vmax)
        bar.set_ticks(ticks, labels=[f"{tick:,}" for tick in ticks])
    bar.set_label(title, fontsize=_FONT)
    bar.ax.tick_params(labelsize=_FONT)


def _ticks(largest: float) -> list[int]:
    """Of 1, 2, 5, 10, 20, ... those up to `largest`; of many the powers of ten."""
    steps = (1, 2, 5) if largest < 1000 else (1,)
    powers = [10**power for power in range(len(str(int(largest))))]
    return [s * p for p in powers for s in steps if s * p <= largest]


def _write_numbers(axes, texts: list[list[str]], shades) -> None:
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            if text:
                colour = "white" if shades[i, j] > 0.55 else "black"
                axes.text(
                    j, i, text, ha="center", va="center", color=colour, size=_FONT - 0.5
                )
