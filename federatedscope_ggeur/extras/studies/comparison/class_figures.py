"""Figures and numbers of each class: accuracy and confusion matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from matplotlib.lines import Line2D

from federatedscope_ggeur.reporting.plots import shortened
from federatedscope_ggeur.reporting.tables import csv_text

from .comparison import Comparison
from .figures import panels_of
from .pictures import (
    TITLE_CHARACTERS,
    WIDTHS,
    Picture,
    add_legend,
    check_width,
    look,
    panels,
    settle,
    style,
    tidy,
)
from .table import Row, Table

Counts = Mapping[Path, np.ndarray]
#: With more classes, names are left out and cells have no numbers.
_MOST_NAMES = {"one": 20, "two": 40}
_MOST_NUMBERS = {"one": 10, "two": 10}
_MOST_MATRICES = 6  # in one figure, to fit a page
_NAME_CHARACTERS = 14
_ACROSS = {"one": 1, "two": 2}


def class_figures(
    comparison: Comparison, counts: Counts, width: str = "two"
) -> list[Picture]:
    """Draw, for each table, the accuracy of each class, and confusion matrices.

    Parameters
    ----------
    comparison : Comparison
    counts : mapping from a run's folder to int array of shape [C, C]
        The numbers of test rows by class (row) and by predicted class (column).
    width : {"one", "two"}
        See `figures.figures`.
    """
    check_width(width)
    found = []
    with style():
        for number, table in enumerate(comparison.tables):
            end = f"_{number + 1}" if len(comparison.tables) > 1 else ""
            known = {
                name: matrices
                for name, row in table.rows.items()
                if (matrices := _matrices(row, counts))
            }
            if not known:
                continue
            found.append(_classes(table, known, width, f"classes{end}", number))
            names = list(known)
            for first in range(0, len(names), _MOST_MATRICES):
                part = f"_part{first // _MOST_MATRICES + 1}" * (
                    len(names) > _MOST_MATRICES
                )
                some = {n: known[n] for n in names[first : first + _MOST_MATRICES]}
                title = f"confusion{end}{part}"
                found.append(_confusion(table, some, width, title, number))
        for picture in found:
            settle(picture.figure)
    return found


def class_csv(comparison: Comparison, counts: Counts) -> str:
    """The confusion counts of all runs as CSV, without zeros.

    Each line gives how many test rows of one class a run predicts as another class.
    """
    lines = [
        [table.title, name, seed, table.class_names[i], table.class_names[j], count]
        for table in comparison.tables
        for name, row in table.rows.items()
        for seed, matrix in _matrices(row, counts).items()
        for (i, j), count in np.ndenumerate(matrix)
        if count
    ]
    return csv_text([["table", "row", "seed", "class", "taken_for", "rows"], *lines])


def class_accuracy(matrix: np.ndarray) -> np.ndarray:
    """The accuracy of each class, as a float array of shape [C].

    A class without rows gets NaN.
    """
    held = matrix.sum(axis=1)
    return np.where(held > 0, np.diag(matrix) / np.maximum(held, 1), np.nan)


def macro_f1(matrix: np.ndarray) -> float:
    """The mean F1 score over classes with test rows.

    `matrix` [C, C] counts rows by class (row) and by predicted class (column).
    """
    right, held, taken = np.diag(matrix), matrix.sum(axis=1), matrix.sum(axis=0)
    scores = 2 * right / np.maximum(held + taken, 1)
    return float(scores[held > 0].mean()) if held.any() else float("nan")


def macro_f1_notes(comparison: Comparison, counts: Counts) -> list[str]:
    """A note for each table with the macro-F1 of each row, the mean over its runs."""
    notes = []
    for table in comparison.tables:
        found = {
            name: [macro_f1(matrix) for matrix in _matrices(row, counts).values()]
            for name, row in table.rows.items()
        }
        shown = [f"{n} {100 * np.mean(f):.2f}%" for n, f in found.items() if f]
        if shown:
            notes.append(f"macro-F1, mean over runs: {'; '.join(shown)}")
    return notes


def _matrices(row: Row, counts: Counts) -> dict[int, np.ndarray]:
    return {
        seed: counts[run.folder]
        for seed, run in row.runs.items()
        if run.folder in counts
    }


def _classes(table: Table, known, width: str, name: str, number: int) -> Picture:
    names = list(known)
    groups, called = panels_of(table, names)
    legend = list(dict.fromkeys(called.values()))
    figure, grid = panels(len(groups), width, 2.2, legend, across=1)
    # A curve over many classes is readable if the first row's accuracy sorts them.
    first, _ = _over_seeds(known[names[0]].values())
    sized = len(table.class_names) > _MOST_NAMES[width]
    order = np.argsort(-first, kind="stable") if sized else np.arange(len(first))
    for axes, (title, group) in zip(grid, groups):
        axes.set_title(shortened(title, TITLE_CHARACTERS), parse_math=False)
        for place, row_name in enumerate(group):
            means, deviations = _over_seeds(known[row_name].values())
            shift = 0.0 if sized else 0.7 * ((place + 0.5) / len(group) - 0.5)
            shown = {**look(legend.index(called[row_name])), "linestyle": ""}
            axes.errorbar(
                np.arange(len(order)) + shift,
                100 * means[order],
                yerr=None if sized else 100 * deviations[order],
                elinewidth=0.7,
                capsize=1.2,
                **shown,
            )
        axes.set_ylim(0, 102)
        axes.set_ylabel("accuracy (%)")
        tidy(axes)
        axes.grid(False, axis="x")
        if sized:
            about = f"classes, by accuracy of {names[0]}"
            axes.set_xlabel(shortened(about, TITLE_CHARACTERS), parse_math=False)
        else:
            _name_classes(axes.xaxis, [table.class_names[i] for i in order])
    looks = [{**look(i), "linestyle": ""} for i in range(len(legend))]
    add_legend(figure, [Line2D([], [], **one) for one in looks], legend)
    bars = "" if sized else "; error bars: ± standard deviation over seeds"
    return Picture(
        name,
        f"Accuracy on the test rows of each class, all domains together, "
        f"{table.title}: of the head that a run leaves, mean over seeds{bars}.",
        figure,
        number,
    )


def _over_seeds(matrices) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation, over seeds, of the accuracy of each class.

    A class without rows gets NaN.
    """
    columns = np.array([class_accuracy(matrix) for matrix in matrices]).T
    known = [column[~np.isnan(column)].tolist() for column in columns]
    means = [fmean(values) if values else np.nan for values in known]
    deviations = [stdev(values) if len(values) > 1 else 0.0 for values in known]
    return np.array(means), np.array(deviations)


def _confusion(table: Table, known, width: str, name: str, number: int) -> Picture:
    across = min(_ACROSS[width], len(known))
    high = 0.86 * WIDTHS[width] / across
    figure, grid = panels(len(known), width, high, [], across=across)
    size = len(table.class_names)
    for axes, (row_name, matrices) in zip(grid, known.items()):
        total = np.sum(list(matrices.values()), axis=0)
        held = total.sum(axis=1, keepdims=True)
        shares = np.where(held > 0, 100 * total / np.maximum(held, 1), np.nan)
        image = axes.imshow(shares, cmap="Greys", vmin=0, vmax=100, aspect="equal")
        title = shortened(row_name, 80 // across)
        axes.set_title(title, parse_math=False)
        if size <= _MOST_NAMES[width] // across:
            _name_classes(axes.xaxis, table.class_names)
            _name_classes(axes.yaxis, table.class_names, labels=True)
        axes.set_xlabel("taken for")
        axes.set_ylabel("class")
        if size <= _MOST_NUMBERS[width]:
            _write_numbers(axes, shares)
    bar = figure.colorbar(image, ax=grid, fraction=0.04, pad=0.02, shrink=0.6)
    bar.set_label("% of the class's rows")
    bar.outline.set_linewidth(0.6)
    return Picture(
        name,
        f"Which class is taken for which, {table.title}: test rows of all domains and "
        "seeds together, in % of the class's rows, by the head that a run leaves.",
        figure,
        number,
    )


def _name_classes(axis, names: Sequence[str], labels: bool = False) -> None:
    shown = [shortened(name, _NAME_CHARACTERS) for name in names]
    turned = not labels and max(map(len, shown)) > 3
    axis.set_ticks(range(len(shown)))
    axis.set_ticklabels(shown, rotation=90 if turned else 0, parse_math=False)


def _write_numbers(axes, shares: np.ndarray) -> None:
    for (i, j), share in np.ndenumerate(shares):
        if share >= 0.5:
            colour = "white" if share > 55 else "black"
            axes.text(
                j, i, f"{share:.0f}", ha="center", va="center", color=colour, size=7
            )
