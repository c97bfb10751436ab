"""Figures in the size of a printed page, as SVG, PDF or PNG files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from federatedscope_ggeur.printable import as_html
from federatedscope_ggeur.reporting import plots
from federatedscope_ggeur.reporting.plots import COLOURS, MARKERS, shortened
from federatedscope_ggeur.reporting.tables import figure_bytes

#: The widths of one column of a two-column page, and of the whole page, in inches.
WIDTHS = {"one": 3.35, "two": 6.9}
#: The most lines or groups of bars in one panel. More than this need more panels.
MOST_ROWS = 8
_LEGEND_CHARACTERS = 44
#: The most characters of a panel's title.
TITLE_CHARACTERS = 100
_LEGEND_LINE, _LETTER, _HANDLE = 0.16, 0.058, 0.5  # inches
_HASHES = 300  # dots an inch, of PNG
_DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
_BLACK = "#000000"
_STYLE = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
}


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure, the name of its file, and its caption.

    Attributes
    ----------
    name : str
        The name of the figure's file, without an extension.
    caption : str
        A text on what the figure shows, and what its bands and bars are.
    figure : Figure
    table : int
        The number, from 0, of the comparison's table that the figure shows.
    """

    name: str
    caption: str
    figure: Figure
    table: int = 0


@contextmanager
def style() -> Iterator[None]:
    """Use matplotlib's settings for our figures inside this block."""
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_STYLE}):
        yield


def render(picture: Picture, form: str) -> bytes:
    """The bytes of the figure's file. The same figure gives the same bytes.

    Raises
    ------
    ConfigError
        `form` is not one of `FORMATS`.
    """
    dpi = _HASHES if form == "png" else "figure"
    with style():
        return figure_bytes(picture.figure, form, dpi=dpi)


def inline_svg(picture: Picture) -> str:
    """The figure as an SVG element for an HTML page; no other figure has its ids."""
    text = render(picture, "svg").decode("utf-8")
    text = text[text.index("<svg") :]
    own = re.sub(r"\W", "_", picture.name)
    text = re.sub(r'\bid="', f'id="{own}-', text)
    text = re.sub(r'href="#', f'href="#{own}-', text)
    text = re.sub(r"url\(#", f"url(#{own}-", text)
    # The <style> inside would apply to the whole page, because its selector is `*`.
    text = re.sub(r"<style[^>]*>\*\{([^}]*)\}</style>", "", text)
    text = re.sub(r"<defs>\s*</defs>", "", text)
    label = as_html(picture.caption)
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1).strip()


def panels(
    count: int, width: str, height: float, labels: Sequence[str]
) -> tuple[Figure, list]:
    """Make a figure of `count` panels, with room below them for a legend of `labels`.

    Parameters
    ----------
    count : int
    width : {"one", "two"}
    height : float
        The height of a panel, in inches.
    labels : sequence of str
        The labels of the legend.

    Panels stand side by side if they have the width of a page.
    """
    wide = WIDTHS[width]
    across = min(count, 1 if width == "one" else 2)
    down = -(-count // across)
    below = _legend_height(labels, wide)
    high = down * height + below
    share = below / high
    layout = ConstrainedLayoutEngine(
        w_pad=0.04, h_pad=0.04, rect=(0, share, 1, 1 - share)
    )
    figure = Figure((wide, high), layout=layout, facecolor="white")
    grid = figure.subplots(down, across, squeeze=False, sharey=True)
    axes = list(grid.flat)
    for spare in axes[count:]:
        spare.set_visible(False)
    return figure, axes[:count]


def add_legend(figure: Figure, handles: Sequence, labels: Sequence[str]) -> None:
    """Draw a legend below all panels, in the room that `panels` left."""
    shown = [shortened(label, _LEGEND_CHARACTERS) for label in labels]
    plots.add_legend(
        figure,
        list(zip(handles, shown)),
        loc="lower center",
        ncol=_legend_columns(shown, figure.get_figwidth()),
        handlelength=2.8,
        borderaxespad=0.2,
        columnspacing=1.2,
    )


def look(number: int) -> dict:
    """Colour, marker and dashes of the line of row `number`.

    No two of the first 28 rows share all three. No two rows of a panel share marker and
    dashes.
    """
    return {
        "color": _BLACK if number == 0 else COLOURS[(number - 1) % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": _DASHES[(number + number // len(MARKERS)) % len(_DASHES)],
    }


def settle(figure: Figure) -> None:
    """Fix all positions in a figure, because each drawing would move them a little."""
    FigureCanvasAgg(figure)
    for _ in range(2):
        figure.draw_without_rendering()
    figure.set_layout_engine("none")
    # The solver's last bits depend on where objects lie in memory.
    for axes in figure.axes:
        axes.set_position([round(x, 6) for x in axes.get_position().bounds])


def tidy(axes) -> None:
    """Give `axes` the grid and frame of all our figures."""
    axes.grid(True, color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def chunks(names: Sequence[str]) -> list[list[str]]:
    """Divide `names` into groups of about equal size, one for each panel.

    If there are several groups, their size is even, because methods often come in
    pairs, with and without an addition.
    """
    count = -(-len(names) // MOST_ROWS) or 1
    size = -(-len(names) // count)
    size += size % 2 * (count > 1)
    return [list(names[i : i + size]) for i in range(0, len(names), size)]


def _legend_columns(labels: Sequence[str], wide: float) -> int:
    longest = max((len(label) for label in labels), default=1)
    return max(1, min(len(labels), int(wide / (longest * _LETTER + _HANDLE))))


def _legend_height(labels: Sequence[str], wide: float) -> float:
    if not labels:
        return 0.0
    shown = [shortened(label, _LEGEND_CHARACTERS) for label in labels]
    return 0.1 + _LEGEND_LINE * -(-len(shown) // _legend_columns(shown, wide))
