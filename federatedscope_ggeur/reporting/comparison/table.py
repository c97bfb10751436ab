"""Rows of runs on one data set, and what they have to say of each other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product

from federatedscope_ggeur.reporting.comparison.measures import (
    AVG,
    STD,
    Measure,
    rounds_to,
)
from federatedscope_ggeur.reporting.comparison.runs import FoundRun
from federatedscope_ggeur.reporting.comparison.statistics import (
    Difference,
    Spread,
    differences,
)
from federatedscope_ggeur.reporting.study import Axis

#: Common seeds from which a row is called no worse than the best one, or worse.
CLAIM_FROM = 3


@dataclass(frozen=True, eq=False)
class Row:
    """Runs that differ by their seeds alone.

    Attributes
    ----------
    name : str
        The points of the axes that differ in the table.
    labels : dict of str to str
        From axis to point.
    runs : dict of int to FoundRun
        By seed, in order.
    """

    name: str
    labels: dict[str, str]
    runs: dict[int, FoundRun]

    @property
    def head(self) -> str:
        """Which head its runs left; see `heads_text`."""
        return heads_text(self.runs.values())

    @property
    def pools(self) -> bool:
        """Whether all rows are in one place: the upper bound of a federation."""
        return any(run.results.pooled is not None for run in self.runs.values())

    def numbers(self, measure: Measure) -> dict[int, float]:
        """From each seed that has it to the number."""
        found = {seed: measure.of(run.results) for seed, run in self.runs.items()}
        return {seed: value for seed, value in found.items() if value is not None}

    def spread(self, measure: Measure) -> Spread | None:
        """Mean, deviation and interval over seeds; None without a number."""
        return Spread.of(list(self.numbers(measure).values()))


@dataclass(frozen=True)
class Best:
    """Which rows share the best place in a column.

    Attributes
    ----------
    rows : frozenset of str
        With the best mean, and those not significantly worse than that one.
    tested : frozenset of str
        Those of them that others were tested against, on `CLAIM_FROM` seeds and more.
    """

    rows: frozenset[str] = frozenset()
    tested: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Table:
    """The runs on one data set: those with the same domains and classes.

    Attributes
    ----------
    title : str
    domains, unseen : list of str
    class_names : list of str
    axes : list of Axis
        Those with more than one point; the first is that of the rows.
    columns : list of str
        Axes among them whose points stand side by side.
    rows : dict of str to Row
        By name, in order.
    baselines : dict of str to str
        From a row to the one that it is compared with, where there is one.
    notes : list of str
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

    @property
    def scores(self) -> list[Measure]:
        """Accuracy of each domain, AVG and STD; the last two alone of one domain's."""
        domains = [Measure("accuracy", domain) for domain in self.domains]
        return [*domains, AVG, STD] if len(domains) > 1 else [AVG]

    def differences(self, measure: Measure) -> dict[str, Difference]:
        """Each row but baselines less its baseline, p-values corrected for them all."""
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
        """Rows with scores of clients' own models."""
        return [
            name
            for name, row in self.rows.items()
            if any(run.results.final.scored == "clients" for run in row.runs.values())
        ]

    def same_heads(self) -> list[tuple[list[str], list[int]]]:
        """Rows whose runs left heads of the same bits, and the seeds of these runs."""
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
        return [(list(names), sorted(found)) for names, found in seeds.items()]

    def best(self, measure: Measure) -> Best:
        """Which rows are best among those that differ on the first axis alone.

        Each is compared with the row of the best mean, by a paired t-test over common
        seeds, corrected by Holm for these rows. Those not significantly worse share
        the place. Where a row has fewer than `CLAIM_FROM` seeds in common with the
        best, nothing is claimed: the best mean has the place alone.
        """
        groups = [self._best_of(names, measure) for names in self._alike().values()]
        return Best(
            frozenset(name for one in groups for name in one.rows),
            frozenset(name for one in groups for name in one.tested),
        )

    def _alike(self) -> dict[str, list[str]]:
        """Rows that differ on the first axis alone, by their points on the others."""
        others = [axis.name for axis in self.axes[1:]]
        groups: dict[str, list[str]] = {}
        for name, row in self.rows.items():
            groups.setdefault(name_of(row.labels, others), []).append(name)
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
        found = differences(
            {name: (self.rows[name].numbers(measure), best) for name in others}
        )
        known = [found.get(name) for name in others]
        if any(d is None or d.spread.n < CLAIM_FROM for d in known):
            return Best(frozenset(equal))
        # Without a p-value all differences are one number: worse on every seed alike.
        shared = {
            name
            for name, d in found.items()
            if d.p_holm is not None and not d.is_significant
        }
        return Best(frozenset({top} | shared), frozenset({top} | shared))

    def target(self, name: str, asked: float | None) -> float | None:
        """The AVG that the row's rounds are counted to: `asked` or, by default, what
        its baseline ends with, rounded down to whole percents."""
        if asked is not None:
            return asked
        spread = self.rows[self.baselines.get(name, name)].spread(AVG)
        return None if spread is None else math.floor(100 * spread.mean) / 100

    def rounds(self, name: str, target: float) -> dict[int, int]:
        """From each seed that gets to AVG `target` to the first round there."""
        found = {
            seed: rounds_to(run.results, target)
            for seed, run in self.rows[name].runs.items()
        }
        return {seed: number for seed, number in found.items() if number is not None}

    def grid(self) -> tuple[list[str], list[str], dict[tuple[str, str], str]]:
        """Rows and columns where the axes `columns` stand side by side.

        Returns
        -------
        names : list of str
            What is left of the rows' names.
        columns : list of str
        cells : dict
            From those two to the row of the table.
        """
        down = [axis.name for axis in self.axes if axis.name not in self.columns]
        cells = {
            (
                name_of(row.labels, down) or row.name,
                name_of(row.labels, self.columns),
            ): name
            for name, row in self.rows.items()
        }
        there = {column for _, column in cells}
        beside = [axis for axis in self.axes if axis.name in self.columns]
        # In the axes' order, whichever points a row lacks.
        ordered = [", ".join(points) for points in product(*(a.points for a in beside))]
        columns = [column for column in ordered if column in there]
        columns += sorted(there - set(columns))
        return list(dict.fromkeys(row for row, _ in cells)), columns, cells


def heads_text(runs: Iterable[FoundRun]) -> str:
    """Which head runs left: "trained", "closed form" or "calibrated"; where they
    differ, how many left which."""
    heads = Counter(run.results.final.head.replace("_", " ") for run in runs)
    if len(heads) == 1:
        return next(iter(heads))
    return ", ".join(f"{count} {head}" for head, count in heads.most_common())


def name_of(labels: dict[str, str], axes: Sequence[str]) -> str:
    """The points of `axes`, in their order."""
    return ", ".join(labels[axis] for axis in axes if labels.get(axis))
