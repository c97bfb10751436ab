"""Draw the learning curve of a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from federatedscope_ggeur.printable import LINE, printable

from .results import Results
from .tables import write_figure

#: Okabe and Ito's colours: colour-blind readers can distinguish them. AVG is black.
#: Their yellow is too pale on white, so it is darkened. Markers distinguish lines in
#: grey, and lines of one colour, because 9 is no multiple of 7.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8A7A00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_OTHERS = {"color": "0.78", "linewidth": 0.8}
_BOLD = {"color": "black", "marker": "o", "linewidth": 2.6, "markersize": 5}
_LEGEND_CHARACTERS, _TITLE_CHARACTERS = 24, 60
_MOST_NAMED = 12  # more domains have no names
_MOST_LEVELS = 4  # with more domains a closed form shows only its AVG


def draw_curve(results: Results, path: str | os.PathLike) -> None:
    """Draw accuracy (in %) over rounds as a PNG: every domain, and AVG in bold.

    A head in closed form has no rounds, so it is a horizontal line at its accuracy. A
    calibrated head stands behind the last round. If nothing was evaluated, a text says
    so. More than 12 domains are grey lines without names. Unseen domains are dashed.
    Rounds that were not evaluated are left out, and so are domains without test rows.
    The title has the last two folders of the run and its AVG. The same results give the
    same bytes.

    Raises
    ------
    ConfigError
        The file cannot be written. Then no part of the file remains.
    """
    evaluated = [record for record in results.rounds if record.evaluated]
    made = [results.closed_form, results.calibrated]
    heads = [head for head in made if head is not None]
    names = [
        domain
        for domain in results.domains
        if any(r.accuracy.get(domain) is not None for r in [*evaluated, *heads])
    ]
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    figure = Figure((8, 4.5), dpi=150, layout=layout, facecolor="white")
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_axisbelow(True)
    if evaluated or heads:
        _draw_lines(axes, results, names, evaluated)
    else:
        axes.text(0.5, 50, "no round was evaluated", ha="center", va="center")
        axes.set_ylim(0, 100)
    axes.set_xlabel("round")
    axes.set_ylabel("test accuracy (%)")
    ticks = MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10])
    axes.xaxis.set_major_locator(ticks)
    axes.grid(True, color="0.9", linewidth=0.8)
    look = {"loc": "left", "fontsize": 10, "color": "0.4"}
    axes.set_title(_title(results), parse_math=False, **look)
    write_figure(path, figure)


def shortened(name: str, characters: int) -> str:
    """`name`, printable, and cut in the middle if it is long.

    Names often differ at their ends, so both ends are kept.
    """
    name = printable(name, LINE)
    half = (characters - 3) // 2
    return f"{name[:half]}...{name[-half:]}" if len(name) > characters else name


def _draw_lines(axes, results: Results, names: list[str], evaluated) -> None:
    calibrated, closed_form = results.calibrated, results.closed_form
    named = names if len(names) <= _MOST_NAMED else []
    entries, rounds = [], [record.round for record in evaluated]
    last = results.rounds[-1].round if results.rounds else 1
    behind = last + max(1, last // 20)
    others = [name for name in names if name not in named]
    for name in others:
        scores = [record.accuracy.get(name) for record in evaluated]
        line = _draw_line(axes, rounds, scores, **_OTHERS)
    for i, name in enumerate(named):
        look = {
            "color": COLOURS[i % len(COLOURS)],
            "marker": MARKERS[i % len(MARKERS)],
            "linewidth": 1.2,
        }
        dashed = {"linestyle": "--"} if name in results.unseen_domains else {}
        scores = [record.accuracy.get(name) for record in evaluated]
        drawn = _draw_line(axes, rounds, scores, markersize=4, **look, **dashed)
        whose = " (unseen)" * (name in results.unseen_domains)
        entries.append((drawn, shortened(name, _LEGEND_CHARACTERS) + whose))
        if calibrated is not None:
            score = calibrated.accuracy.get(name)
            _draw_dot(axes, behind, score, look["color"], look["marker"], 50)
        if closed_form is not None and (len(names) <= _MOST_LEVELS or not rounds):
            level = {**look, "markersize": 6, "markerfacecolor": "white"}
            _draw_level(axes, behind, closed_form.accuracy.get(name), **level)
    if others:
        entries.append((line, f"{len(others)} domains"))
    average = [record.avg for record in evaluated]
    if average:
        entries.append((_draw_line(axes, rounds, average, zorder=3, **_BOLD), "AVG"))
    if closed_form is not None:
        level = _draw_level(axes, behind, closed_form.avg, color="black", linewidth=2.2)
        entries.append((level, f"in closed form ({closed_form.method})"))
    if calibrated is not None:
        star = _draw_dot(axes, behind, calibrated.avg, "black", "*", 150)
        entries.append((star, calibrated.title_after))
    add_legend(
        axes,
        [entry for entry in entries if entry[0] is not None],
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
        fontsize=9,
        handlelength=3,
        scatterpoints=1,
    )


def _title(results: Results) -> str:
    """The title of the picture: the run's name and its score."""
    outdir, name = (results.config.get(key, "") for key in ("outdir", "expname"))
    whose = f"{Path(str(outdir)).name}/{name}".strip("/")
    score = results.final.avg
    return shortened(whose, _TITLE_CHARACTERS) + (
        "" if score is None else f": AVG {100 * score:.1f}%"
    )


def _draw_line(axes, rounds, scores, **look) -> Line2D:
    y = [float("nan") if score is None else 100 * score for score in scores]
    (line,) = axes.plot(rounds, y, markevery=max(1, len(rounds) // 10), **look)
    return line


def _draw_level(axes, last, score, **look) -> Line2D | None:
    if score is None:
        return None
    # One marker, at round 0, where the head is made.
    (line,) = axes.plot([0, last], [100 * score] * 2, ls=":", markevery=2, **look)
    return line


def _draw_dot(axes, x, score, color, marker, size) -> PathCollection | None:
    if score is None:
        return None
    look = {"edgecolors": "black", "linewidths": 0.8, "zorder": 4}
    return axes.scatter([x], [100 * score], s=size, marker=marker, color=color, **look)


def add_legend(owner: Axes | Figure, entries: Sequence[tuple], **look) -> None:
    """Give `owner` a legend of pairs (handle, label). Labels are shown as written."""
    handles = [handle for handle, _ in entries]
    numbers = list(map(str, range(len(entries))))
    legend = owner.legend(handles, numbers, frameon=False, **look)
    # Labels are set afterwards, because a domain may have any name. legend() drops a
    # label that starts with "_", and reads one with "$" as a formula.
    for text, (_, label) in zip(legend.get_texts(), entries):
        text.set_text(label)
        text.set_parse_math(False)
