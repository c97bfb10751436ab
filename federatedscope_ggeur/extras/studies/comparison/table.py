"""The rows of runs on one data set, and their comparison.

Write a comparison as one long table of numbers, for other programs.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from federatedscope_ggeur.reporting.tables import csv_text

from ..study import Axis
from .labels import Difference, Spread, differences
from .runs import AVG, COSTS, STD, FoundRun, Measure, rounds_to

#: A point that says nothing without its axis: a number, a list, a truth value.
_BARE = re.compile(r"[-+\d.,:(){}\[\]' e]+|True|False|None")
#: A row is called worse, or no worse, than the best only with this many common seeds.
CLAIM_FROM = 5
#: "best" is the best by a test. "top" is the best mean, without a test.
Mark = Literal["", "best", "top"]


@dataclass(frozen=True, eq=False)
class Row:
    """Runs that differ only by their seeds.

    Attributes
    ----------
    name : str
        The points of the axes that differ in the table.
    labels : dict of str to str
        The row's point on each axis.
    runs : dict of int to FoundRun
        The run of each seed, in order.
    """

    name: str
    labels: dict[str, str]
    runs: dict[int, FoundRun]

    @property
    def head(self) -> str:
        """The kind of head that the row's runs left; see `heads_text`."""
        return heads_text(self.runs.values())

    @property
    def pools(self) -> bool:
        """Whether the runs train on all rows in one place, as the upper bound does."""
        return any(run.results.pooled is not None for run in self.runs.values())

    def numbers(self, measure: Measure) -> dict[int, float]:
        """The number of each seed. Seeds without the number are left out."""
        values = {seed: measure.of(run.results) for seed, run in self.runs.items()}
        return {seed: value for seed, value in values.items() if value is not None}

    def spread(self, measure: Measure) -> Spread | None:
        """Mean, deviation and interval over seeds; None if no seed has the number."""
        return Spread.of(list(self.numbers(measure).values()))


@dataclass(frozen=True)
class Best:
    """The rows that share the best place in a column.

    Attributes
    ----------
    rows : frozenset of str
        The row with the best mean, and the rows that are not significantly worse.
    tested : frozenset of str
        Those of `rows` that a test found, with at least `CLAIM_FROM` seeds.
    """

    rows: frozenset[str] = frozenset()
    tested: frozenset[str] = frozenset()

    def mark(self, name: str | None) -> Mark:
        """The mark of a row."""
        if name not in self.rows:
            return ""
        return "best" if name in self.tested else "top"


@dataclass(frozen=True, eq=False)
class Table:
    """The table of the runs on one data set, with the same domains and classes.

    Attributes
    ----------
    title : str
    domains, unseen : list of str
    class_names : list of str
    axes : list of Axis
        The axes with more than one point. The first is the axis of the rows.
    columns : list of str
        Those axes whose points stand side by side.
    rows : dict of str to Row
        The rows by name, in order.
    baselines : dict of str to str
        The baseline of each row that has one.
    notes : list of str
    shared : dict of str to str
        The points that all rows have, by axis.
    """

    title: str
    domains: list[str]
    unseen: list[str]
    class_names: list[str]
    axes: list[Axis]
    columns: list[str]
    rows: dict[str, Row]
    baselines: dict[str, str]
    notes: list[str] = field(default_factory=list)
    shared: dict[str, str] = field(default_factory=dict)

    @property
    def first(self) -> str:
        """The axis of the rows."""
        return self.axes[0].name if self.axes else ""

    @property
    def others(self) -> list[str]:
        """The axes behind the first."""
        return [axis.name for axis in self.axes[1:]]

    def point(self, row: Row) -> str:
        """The row's point on the first axis."""
        return row.labels.get(self.first, row.name)

    @property
    def scores(self) -> list[Measure]:
        """Accuracy of each domain, AVG and STD; only AVG if there is one domain."""
        domains = [Measure("accuracy", domain) for domain in self.domains]
        return [*domains, AVG, STD] if len(domains) > 1 else [AVG]

    def differences(self, measure: Measure) -> dict[str, Difference]:
        """The difference of each row to its baseline, with corrected p-values."""
        return differences(
            {
                name: (
                    self.rows[name].numbers(measure),
                    self.rows[other].numbers(measure),
                )
                for name, other in self.baselines.items()
                if name != other
            }
        )

    @property
    def scored_by_clients(self) -> list[str]:
        """The rows with a run that scored clients' own models."""
        return [
            name
            for name, row in self.rows.items()
            if any(run.results.final.scored == "clients" for run in row.runs.values())
        ]

    def same_heads(self) -> list[tuple[list[str], list[int]]]:
        """Groups of rows whose runs left exactly the same head, and their seeds."""
        rows: dict[tuple[int, str], list[str]] = {}
        for name, row in self.rows.items():
            for seed, run in row.runs.items():
                final = run.results.final
                if final.head_sha256 is not None and final.scored == "global":
                    rows.setdefault((seed, final.head_sha256), []).append(name)
        seeds: dict[tuple[str, ...], list[int]] = {}
        for (seed, _), names in rows.items():
            if len(names) > 1:
                seeds.setdefault(tuple(names), []).append(seed)
        return [(list(names), sorted(own)) for names, own in seeds.items()]

    def best(self, measure: Measure) -> Best:
        """The best rows of each group of rows that differ only on the first axis.

        Each row is compared with the row of the best mean, by a paired t-test over
        common seeds, corrected by Holm for these rows. Rows that are not significantly
        worse share the first place, unless a row that is worse has a better mean than
        theirs. If a row has fewer than `CLAIM_FROM` seeds in
        common with the best one, nothing is claimed, and only the best mean has the
        first place.
        """
        groups = [self._best_of(names, measure) for names in self._alike().values()]
        return Best(
            frozenset(name for one in groups for name in one.rows),
            frozenset(name for one in groups for name in one.tested),
        )

    def _alike(self) -> dict[str, list[str]]:
        """Groups of rows that differ only on the first axis, by their other points."""
        groups: dict[str, list[str]] = {}
        for name, row in self.rows.items():
            groups.setdefault(name_of(row.labels, self.others), []).append(name)
        return groups

    def _best_of(self, names: Iterable[str], measure: Measure) -> Best:
        spreads = {
            name: spread
            for name in names
            if (spread := self.rows[name].spread(measure)) is not None
        }
        if len(spreads) < 2:
            return Best()
        sign = -1 if measure.smallest_is_best else 1
        top = max(spreads, key=lambda name: sign * spreads[name].mean)
        equal = {n for n, s in spreads.items() if s.mean == spreads[top].mean}
        best = self.rows[top].numbers(measure)
        others = [name for name in spreads if name != top]
        compared = differences(
            {name: (self.rows[name].numbers(measure), best) for name in others}
        )
        known = [compared.get(name) for name in others]
        if any(d is None or d.spread.n < CLAIM_FROM for d in known):
            return Best(frozenset(equal))
        shared = {name for name, d in compared.items() if d.is_equal} | {top}
        # A row may be surely worse and still have a better mean than one that varies.
        worse = [sign * s.mean for n, s in spreads.items() if n not in shared]
        bar = max(worse, default=-math.inf)
        shared = {name for name in shared if sign * spreads[name].mean >= bar}
        return Best(frozenset(shared), frozenset(shared))

    def target(self, name: str, asked: float | None) -> float | None:
        """The AVG that the row's rounds are counted to.

        It is `asked` or, by default, the last AVG of the row's baseline, rounded down
        to whole percents.
        """
        if asked is not None:
            return asked
        spread = self.rows[self.baselines.get(name, name)].spread(AVG)
        return None if spread is None else math.floor(100 * spread.mean) / 100

    def rounds(self, name: str, target: float) -> dict[int, int]:
        """The first round of each seed in which AVG reaches `target`.

        Seeds that never reach it are left out.
        """
        rounds = {
            seed: rounds_to(run.results, target)
            for seed, run in self.rows[name].runs.items()
        }
        return {seed: number for seed, number in rounds.items() if number is not None}

    def grid(self) -> tuple[list[str], list[str], dict[tuple[str, str], str]]:
        """The table as a grid, with the axes `columns` side by side.

        Returns
        -------
        names : list of str
            The names of the rows, without the points of `columns`.
        columns : list of str
        cells : dict
            The row of the table for each name and column.
        """
        down = [axis.name for axis in self.axes if axis.name not in self.columns]
        cells = {
            (
                name_of(row.labels, down) or row.name,
                heading(row.labels, self.columns),
            ): name
            for name, row in self.rows.items()
        }
        names, columns = (list(dict.fromkeys(part)) for part in zip(*cells))
        return names, columns, cells


def heads_text(runs: Iterable[FoundRun]) -> str:
    """The kind of head that runs left: "trained", "closed form" or "calibrated".

    If the kinds differ, the text gives the number of runs of each kind.
    """
    heads = Counter(run.results.final.head.replace("_", " ") for run in runs)
    if len(heads) == 1:
        return next(iter(heads))
    return ", ".join(f"{count} {head}" for head, count in heads.most_common())


def seeds_text(rows: Iterable[Row]) -> str:
    """How many seeds the rows have, such as "3" or "2 or 3"."""
    return " or ".join(map(str, sorted({len(row.runs) for row in rows})))


def across(tables: Sequence[Table]) -> list[tuple[str, Table, list[Row]]]:
    """The settings of several data sets as columns of one table.

    Returns
    -------
    list of (str, Table, list of Row)
        The heading of each column, its table, and its rows; empty if the tables have
        not the same axis of rows.
    """
    if len({table.first for table in tables}) != 1 or len(tables) < 2:
        return []
    axes = dict.fromkeys(axis for table in tables for axis in table.shared)
    telling = [a for a in axes if len({table.shared.get(a) for table in tables}) > 1]
    columns: list[tuple[str, Table, list[Row]]] = []
    times: Counter[str] = Counter()
    for table in tables:
        settings: dict[str, list[Row]] = {}
        for row in table.rows.values():
            settings.setdefault(heading(row.labels, table.others), []).append(row)
        name = heading(table.shared, telling) or table.title
        for setting, rows in settings.items():
            title = ", ".join(filter(None, [name, setting]))
            times[title] += 1
            same = f" ({times[title]})" if times[title] > 1 else ""
            columns.append((title + same, table, rows))
    return columns


def heading(labels: dict[str, str], axes: Sequence[str]) -> str:
    """The points of `axes` as the head of a column or panel.

    A bare value stands behind the name of its axis, as in ``alpha = 0.1``.
    """
    parts = [(axis, labels[axis]) for axis in axes if labels.get(axis)]
    return ", ".join(
        f"{axis.rpartition('.')[2]} = {point}" if _BARE.fullmatch(point) else point
        for axis, point in parts
    )


def name_of(labels: dict[str, str], axes: Sequence[str]) -> str:
    """The points of `axes` as one text, in their order."""
    return ", ".join(labels[axis] for axis in axes if labels.get(axis))


COLUMNS = (
    "table", "row", "head", "head_sha256", "measure", "domain", "seed", "n", "value",
    "sd", "low", "high", "baseline", "p", "p_holm", "best",
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
            if (spread := row.spread(measure)) is not None:
                lines.append({**line, **_spread(spread), "best": best.mark(name)})
            if (difference := differences.get(name)) is not None:
                tested = {"p": difference.p, "p_holm": difference.p_holm}
                known = {**_spread(difference.spread), **tested}
                lines.append({**line, **known, "baseline": table.baselines[name]})
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
    named = {name: getattr(spread, name) for name in ("n", "sd", "low", "high")}
    return {**named, "value": spread.mean}
