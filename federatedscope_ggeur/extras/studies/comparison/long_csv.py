"""Write a comparison as one long table of numbers, for other programs."""

from __future__ import annotations

from collections.abc import Sequence

from federatedscope_ggeur.reporting.tables import csv_text

from .measures import COSTS
from .runs import FoundRun
from .statistics import Spread
from .table import Table, heads_text

COLUMNS = (
    "table", "row", "head", "head_sha256", "measure", "domain", "seed", "n", "value",
    "sd", "low", "high", "baseline", "p", "p_holm", "p_wilcoxon",
    "p_wilcoxon_holm", "best",
)  # fmt: skip


def as_csv(tables: Sequence[Table], target: float | None) -> str:
    """All numbers of all tables as CSV: fractions and bytes, floats exact.

    A line with a seed holds one run's number, and the hash of the head that the run
    left. A line without a seed holds the mean over seeds, with `sd` and the 95%
    interval `low` to `high`. A line with a baseline holds the mean difference to the
    baseline, with p-values. `best` is ``best`` if other rows were tested, and ``top``
    if not. The columns behind `table` and `row` hold the row's point on each axis.
    `head` says which head the line's runs left.
    """
    axes = dict.fromkeys(axis.name for table in tables for axis in table.axes)
    # An axis with the name of a column gets no column; `row` names its point.
    names = [
        *COLUMNS[:2],
        *(axis for axis in axes if axis not in COLUMNS),
        *COLUMNS[2:],
    ]
    lines: list[dict] = []
    for table in tables:
        lines += _lines(table, target)
    cells = ([line.get(name, "") for name in names] for line in lines)
    return csv_text([names, *cells])


def _lines(table: Table, target: float | None) -> list[dict]:
    lines = []
    about = {
        name: {**row.labels, "table": table.title, "row": name, "head": row.head}
        for name, row in table.rows.items()
    }
    for measure in [*table.scores, *COSTS]:
        best = table.best(measure)
        differences = table.differences(measure) if measure.is_score else {}
        for name, row in table.rows.items():
            line = {**about[name], "measure": measure.key, "domain": measure.domain}
            lines += [
                {**line, **_of_run(row.runs[seed]), "n": 1, "value": value}
                for seed, value in row.numbers(measure).items()
            ]
            spread = row.spread(measure)
            mark = "best" if name in best.tested else "top"
            if spread is not None:
                marked = mark if name in best.rows else ""
                lines.append({**line, **_spread(spread), "best": marked})
            if name in differences:
                found = differences[name]
                lines.append(
                    {
                        **line,
                        **_spread(found.spread),
                        "baseline": table.baselines[name],
                        "p": found.p,
                        "p_holm": found.p_holm,
                        "p_wilcoxon": found.p_wilcoxon,
                        "p_wilcoxon_holm": found.p_wilcoxon_holm,
                    }
                )
    for name, row in table.rows.items():
        goal = table.target(name, target)
        if goal is not None:
            line = {**about[name], "measure": f"rounds to AVG {goal:g}"}
            lines += [
                {**line, **_of_run(row.runs[seed]), "n": 1, "value": number}
                for seed, number in table.rounds(name, goal).items()
            ]
    return lines


def _of_run(run: FoundRun) -> dict:
    final = run.results.final
    head = heads_text([run])
    return {"seed": run.results.seed, "head": head, "head_sha256": final.head_sha256}


def _spread(spread: Spread) -> dict:
    return {
        "n": spread.n,
        "value": spread.mean,
        "sd": spread.sd,
        "low": spread.low,
        "high": spread.high,
    }
