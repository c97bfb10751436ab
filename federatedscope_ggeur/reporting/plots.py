"""The learning curve of a run as a picture."""

from __future__ import annotations

import io
import os

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.reporting.results import Results, RoundRecord

# Okabe and Ito's colours, told apart by colour-blind readers; black is for AVG, and
# their yellow, too pale on white, is darkened. With more domains, markers differ.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8A7A00")
MARKERS = ("o", "s", "^", "D")
_LEGEND_ROWS = 18
_LEGEND_CHARACTERS = 24


def draw_curve(results: Results, path: str | os.PathLike) -> None:
    """Draw accuracy (in %) against the round as a PNG: every domain, and AVG in bold.

    A head in closed form stands at round 0, a calibrated one as stars behind the last.
    Unseen domains are dashed; rounds that were not evaluated and domains without
    test rows are left out. The same results give the same bytes.

    Raises
    ------
    ConfigError
        If `path` cannot be written; nothing is left behind.
    """
    evaluated = [record for record in results.rounds if record.evaluated]
    if results.closed_form is not None:
        evaluated.insert(0, results.closed_form)
    # A legend of many domains widens the picture rather than squeezing the curve.
    width = 5 + 3 * _legend_columns(len(results.domains) + 1)
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    figure = Figure((width, 4.5), dpi=150, layout=layout, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if evaluated or results.calibrated is not None:
        _draw_lines(axes, results, evaluated)
    else:
        axes.text(0.5, 50, "no round was evaluated", ha="center", va="center")
        axes.set_ylim(0, 100)
    _label(axes)
    write_png(path, canvas)


def write_png(path: str | os.PathLike, canvas: FigureCanvasAgg) -> None:
    """Write a figure; the same one gives the same bytes."""
    picture = io.BytesIO()
    canvas.print_png(picture, metadata={"Software": None})
    write_atomically(path, picture.getvalue())


def shortened(name: str, characters: int) -> str:
    """`name`, cut in the middle if it is long: names tend to differ at their ends."""
    half = (characters - 3) // 2
    return f"{name[:half]}...{name[-half:]}" if len(name) > characters else name


def _draw_lines(axes, results: Results, evaluated: list[RoundRecord]) -> None:
    unseen, calibrated = set(results.unseen_domains), results.calibrated
    records = evaluated + [calibrated] * (calibrated is not None)
    names = [
        domain
        for domain in results.domains
        if any(record.accuracy.get(domain) is not None for record in records)
    ]
    rounds = [record.round for record in evaluated]
    last = results.rounds[-1].round if results.rounds else 0
    behind = last + max(1, last // 20)
    for i, domain in enumerate(names):
        scores = [record.accuracy.get(domain) for record in evaluated]
        look = {
            "color": COLOURS[i % len(COLOURS)],
            "marker": MARKERS[i // len(COLOURS) % len(MARKERS)],
            "linestyle": "--" if domain in unseen else "-",
        }
        _draw_line(axes, rounds, scores, linewidth=1.2, markersize=3.5, **look)
        if calibrated is not None:
            score = calibrated.accuracy.get(domain)
            _draw_star(axes, behind, score, look["color"], 60)
    average = [record.avg for record in evaluated]
    bold = {"linewidth": 2.6, "markersize": 5, "zorder": 3}
    _draw_line(axes, rounds, average, color="black", marker="o", **bold)
    if calibrated is not None:
        _draw_star(axes, behind, calibrated.avg, "black", 120)
        axes.plot([], [], color="black", marker="*", markersize=9, linestyle="none")
    labels = [
        shortened(name, _LEGEND_CHARACTERS) + " (unseen)" * (name in unseen)
        for name in names
    ]
    _add_legend(axes, [*labels, "AVG", *["calibrated"] * (calibrated is not None)])


def _draw_line(axes, rounds, scores, **look) -> None:
    y = [float("nan") if score is None else 100 * score for score in scores]
    axes.plot(rounds, y, markevery=max(1, len(rounds) // 10), **look)


def _draw_star(axes, x, score, color, size) -> None:
    if score is not None:
        axes.scatter([x], [100 * score], marker="*", s=size, color=color, zorder=4)


def _add_legend(axes, labels: list[str]) -> None:
    legend = axes.legend(
        axes.lines,
        [str(i) for i in range(len(labels))],
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
        ncol=_legend_columns(len(labels)),
        frameon=False,
        fontsize=9,
        handlelength=3,
    )
    # Set afterwards: a label given to legend() is dropped if it starts with "_" and
    # read as a formula if it holds "$", and a domain may be called anything.
    for text, label in zip(legend.get_texts(), labels):
        text.set_text(label)
        text.set_parse_math(False)


def _legend_columns(entries: int) -> int:
    return -(-entries // _LEGEND_ROWS)


def _label(axes) -> None:
    axes.set_xlabel("round")
    axes.set_ylabel("test accuracy (%)")
    axes.xaxis.set_major_locator(
        MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10])
    )
    axes.grid(True, color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
