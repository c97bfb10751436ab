"""Figures of a comparison: accuracy by round, and by bytes sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from federatedscope_ggeur.reporting.plots import shortened
from federatedscope_ggeur.reporting.records import RoundRecord
from federatedscope_ggeur.reporting.results import Results

from .comparison import Comparison
from .pictures import (
    TITLE_CHARACTERS,
    Picture,
    add_legend,
    chunks,
    look,
    panels,
    settle,
    style,
    tidy,
)
from .runs import AVG, bytes_so_far, scored
from .table import Row, Table, heading

_PANEL = {"one": 2.3, "two": 2.5}  # inches high
_BAND = "bands: ± standard deviation over seeds"


@dataclass(frozen=True)
class Curve:
    """The curve of a row's scores over rounds or bytes, averaged over seeds.

    Attributes
    ----------
    x : list of float
    y, sd : list of float
        The mean and the deviation in percent. The deviation of one seed is 0.
    is_flat : bool
        Whether the row has a head made without rounds, and so only one score.
    calibrated : tuple of float, optional
        The mean and the deviation of the head that is calibrated after the last round.
    end : float, optional
        The last score, if other rows are compared with this one.
    """

    x: list[float]
    y: list[float]
    sd: list[float]
    is_flat: bool = False
    calibrated: tuple[float, float] | None = None
    end: float | None = None


def figures(
    comparison: Comparison, width: str = "two", names: Collection[str] | None = None
) -> list[Picture]:
    """Draw the figures that need only the results.

    Parameters
    ----------
    comparison : Comparison
    width : {"one", "two"}
        The width of the figures: one column of a page, or the whole page.
    names : collection of str, optional
        Which of ``convergence`` and ``accuracy_bytes``; both by default.
    """
    wanted = _FIGURES if names is None else names
    pictures = []
    with style():
        for number, table in enumerate(comparison.tables):
            end = f"_{number + 1}" if len(comparison.tables) > 1 else ""
            for name, draw in _FIGURES.items():
                if name not in wanted:
                    continue
                picture = draw(table, width, f"{name}{end}", number)
                if picture is not None:
                    settle(picture.figure)
                    pictures.append(picture)
    return pictures


def by_round(row: Row) -> Curve | None:
    """The curve of AVG over rounds, for the rounds that every seed has scores for."""
    curve = _curve(row, lambda results: ((r, r.round) for r in scored(results)))
    heads = [run.results.calibrated for run in row.runs.values()]
    averages = [head.avg for head in heads if head is not None and head.avg is not None]
    if curve is None or len(averages) < len(heads):
        return curve
    (y,), (sd,) = _percents([averages])
    return replace(curve, calibrated=(y, sd))


def by_bytes(row: Row) -> Curve | None:
    """The curve of AVG over the megabytes that a client has sent and received."""
    curve = _curve(
        row, lambda results: ((r, b / 1e6) for r, b in bytes_so_far(results))
    )
    # Clients send nothing if all rows are in one place.
    return curve if curve is not None and any(curve.x) else None


def _curve(
    row: Row, scores: Callable[[Results], Iterable[tuple[RoundRecord, float]]]
) -> Curve | None:
    """AVG over places on the x axis, for the rounds that every seed has scores for.

    `scores` yields a run's records, each with its place.
    """
    courses = [
        {r.round: (x, r.avg) for r, x in scores(run.results) if r.avg is not None}
        for run in row.runs.values()
    ]
    rounds = sorted(set.intersection(*map(set, courses))) if courses else []
    if not rounds:
        return None
    points = [[course[number] for course in courses] for number in rounds]
    xs, ys = ([[point[i] for point in of] for of in points] for i in (0, 1))
    return Curve(list(map(fmean, xs)), *_percents(ys), rounds == [0])


def _percents(ys: list[list[float]]) -> tuple[list[float], list[float]]:
    """Means and deviations over seeds, in percent."""
    sd = [100 * stdev(values) if len(values) > 1 else 0.0 for values in ys]
    return [100 * fmean(values) for values in ys], sd


def convergence(table: Table, width: str, name: str, number: int) -> Picture | None:
    """Draw AVG over rounds, with a panel for each point of the axes after the first."""
    baselines = set(table.baselines.values())

    def course(row: Row) -> Curve | None:
        curve, score = by_round(row), row.spread(AVG)
        if curve is None or score is None:
            return curve
        is_goal = row.name in baselines or row.pools
        return replace(curve, end=100 * score.mean if is_goal else None)

    def draw(axes, curve: Curve, shown: dict) -> None:
        if curve.is_flat:
            # A line across the panel: the head exists before the first round.
            axes.axhline(curve.y[0], **{**shown, "marker": ""})
            low, high = curve.y[0] - curve.sd[0], curve.y[0] + curve.sd[0]
            axes.axhspan(low, high, **_band(shown["color"]))
            return
        _line_with_band(axes, curve, shown)
        if curve.end is not None:
            axes.axhline(curve.end, **{**shown, "marker": "", "linewidth": 0.7})
        if curve.calibrated is not None:
            y, sd = curve.calibrated
            behind = curve.x[-1] + max(1.0, curve.x[-1] / 20)
            star = {**shown, "marker": "*", "markersize": 8, "linestyle": ""}
            axes.errorbar([behind], [y], yerr=[sd], elinewidth=0.7, zorder=4, **star)

    return _curves(
        table, width, name, number, course, draw, "round",
        f"Mean AVG over seeds against the round, {{}}; {_BAND}. A head in closed form "
        "without rounds is a horizontal line, a calibrated one a star behind the last "
        "round. Thin horizontal lines: the last score of the baseline, and of the "
        "upper bound, which has all rows in one place.",
    )  # fmt: skip


def against_bytes(table: Table, width: str, name: str, number: int) -> Picture | None:
    """Draw AVG over the bytes sent so far. A head in closed form is a point."""

    def draw(axes, curve: Curve, shown: dict) -> None:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        if curve.is_flat:
            look_alone = {**shown, "linestyle": "", "markersize": 6, "capsize": 2}
            axes.errorbar(curve.x, curve.y, yerr=curve.sd, zorder=4, **look_alone)
            return
        _line_with_band(axes, curve, shown)

    return _curves(
        table, width, name, number, by_bytes, draw,
        "MB a client, up and down, so far",
        "Mean AVG over seeds against the bytes that a client has sent and received by "
        f"then, round by round, {{}}; {_BAND}. A head in closed form is a point. Rows "
        "whose clients send nothing are left out.",
    )  # fmt: skip


def _curves(
    table: Table,
    width: str,
    name: str,
    number: int,
    course: Callable[[Row], Curve | None],
    draw: Callable,
    x_label: str,
    caption: str,
) -> Picture | None:
    """Draw the curves of all rows; rows of one panel differ only on the first axis."""
    curves = {n: c for n, row in table.rows.items() if (c := course(row)) is not None}
    if not curves:
        return None
    groups, shown = panels_of(table, list(curves))
    legend = list(dict.fromkeys(shown.values()))
    figure, grid = panels(len(groups), width, _PANEL[width], legend)
    for axes, (title, names) in zip(grid, groups):
        for row_name in names:
            draw(axes, curves[row_name], look(legend.index(shown[row_name])))
        if x_label == "round":
            if all(curves[n].is_flat for n in names):
                axes.set_xlim(0, 1)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        shown_title = shortened(title or table.title, TITLE_CHARACTERS)
        axes.set_title(shown_title, parse_math=False)
        axes.set_xlabel(x_label)
        tidy(axes)
        axes.set_ylabel("AVG, test accuracy (%)")
    handles = [Line2D([], [], **look(i)) for i in range(len(legend))]
    add_legend(figure, handles, legend)
    return Picture(name, caption.format(table.title), figure, number)


def _band(colour: str) -> dict[str, Any]:
    """The look of a band. Where bands lie on each other, edges tell them apart."""
    faces, edges = to_rgba(colour, 0.1), to_rgba(colour, 0.6)
    return {"facecolor": faces, "edgecolor": edges, "linewidth": 0.4}


def _line_with_band(axes, curve: Curve, shown: Mapping) -> None:
    every = max(1, len(curve.x) // 8)
    axes.plot(curve.x, curve.y, markevery=every, **shown)
    if any(curve.sd):
        low = [y - sd for y, sd in zip(curve.y, curve.sd)]
        high = [y + sd for y, sd in zip(curve.y, curve.sd)]
        axes.fill_between(curve.x, low, high, **_band(shown["color"]))


def panels_of(
    table: Table, names: Sequence[str]
) -> tuple[list[tuple[str, list[str]]], dict[str, str]]:
    """Divide rows into panels of few rows, which differ only on the first axis.

    Returns
    -------
    panels : list of (str, list of str)
        The title of each panel, and its rows.
    shown : dict of str to str
        The name of each row in the legend.
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        title = heading(table.rows[name].labels, table.others)
        groups.setdefault(title, []).append(name)
    shown = {name: table.point(table.rows[name]) for name in names}
    parts = [(title, part) for title, group in groups.items() for part in chunks(group)]
    return parts, shown


_FIGURES = {
    "convergence": convergence,
    "accuracy_bytes": against_bytes,
}
