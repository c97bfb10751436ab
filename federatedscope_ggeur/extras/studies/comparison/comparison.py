"""Compare runs in tables: the class `Comparison`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.printable import Lines
from federatedscope_ggeur.reporting import DataFingerprint, Results

from ..paper import stated_at
from ..study import Axis, Study
from .labels import Labelled, label
from .latex import as_latex
from .page import as_fragment, as_page
from .paper_table import as_paper_tables
from .pictures import Picture
from .runs import FoundRun, find_runs
from .sheets import Sheet, as_markdown, as_text, study_notes
from .table import Row, Table, as_csv, name_of


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs grouped into rows, with their means, intervals and differences over seeds.

    `Comparison.of` makes a comparison. A notebook shows it as tables.

    Attributes
    ----------
    tables : list of Table
        One for each set of domains and classes.
    studies : list of Study
        The studies that the runs belong to.
    notes : list of str
        Notes on what was left out of all tables.
    target : float or None
        The AVG that rounds are counted to, if the user gave one.
    """

    tables: list[Table]
    studies: list[Study]
    notes: list[str]
    target: float | None = None

    @classmethod
    def of(
        cls,
        folders: Sequence[str | os.PathLike] | str | os.PathLike,
        baseline: str | None = None,
        target: float | None = None,
    ) -> Comparison:
        """Compare all runs in and below `folders`.

        The runs of a study are named by its labels. Other runs are named by the
        settings that differ between them. Runs that differ only by seed are one row.

        Parameters
        ----------
        folders : paths
            Folders of runs or of studies, or folders above them.
        baseline : str, optional
            The row that others are compared with: the name of a row, the point of an
            axis, or ``"AXIS=POINT"``. The default is the study's baseline, or else the
            first point of its first axis. Without a study it is the first row.
        target : float, optional
            The AVG that rounds are counted to, as a fraction. The default is the last
            AVG of a row's baseline, rounded down to whole percents.

        Raises
        ------
        DataError
            A folder does not exist, or has no finished run. Files have another version;
            the error names each. Or a row has two runs with one seed.
        ConfigError
            There is no such baseline, or `target` is not in (0, 1].
        """
        if isinstance(folders, (str, os.PathLike)):
            folders = [folders]
        if target is not None and not 0 < target <= 1:
            raise ConfigError(
                "target: must be a fraction above 0 and at most 1, such as 0.8 for "
                f"80%; got {target:g}"
            )
        contents = find_runs(folders)
        sets: dict[tuple, list[FoundRun]] = {}
        for run in contents.runs:
            results = run.results
            key = (frozenset(results.domains), tuple(results.class_names))
            sets.setdefault(key, []).append(run)
        tables = [_table(runs, contents.studies, baseline) for runs in sets.values()]
        tables.sort(key=lambda table: _place(table, contents.studies))
        if baseline is not None and not any(table.baselines for table in tables):
            raise _no_baseline(baseline, tables)
        return cls(tables, contents.studies, contents.notes, target)

    @property
    def title(self) -> str:
        """The titles of the studies; a general title if there are none."""
        titles = " and ".join(study.title for study in self.studies)
        return titles or "Comparison of runs"

    @property
    def all_notes(self) -> list[str]:
        """The notes below all tables.

        They state which settings were tuned, and which runs failed or are left out.
        """
        of_studies = [note for study in self.studies for note in study_notes(study)]
        return [*of_studies, *self.notes]

    def to_text(self) -> str:
        """Aligned tables as text for a terminal."""
        return as_text(self.tables, self.all_notes)

    def to_markdown(self) -> str:
        """Tables in Markdown, with the best of each column in bold."""
        return as_markdown(self.tables, self.all_notes, self.target)

    def to_csv(self) -> str:
        """Tables as CSV, with a line for each number of each row. Floats are exact."""
        return as_csv(self.tables, self.target)

    def to_latex(self, style: Literal["report", "paper", "avg"] = "report") -> str:
        """Tables for LaTeX, with a comment that names the packages they need.

        With the style ``"paper"`` the tables have columns by setting, a label, and
        standard errors. ``"avg"`` is one such table of AVG alone, with a column for
        each data set and setting.
        """
        title = " and ".join(study.title for study in self.studies)
        if style != "report":
            return as_paper_tables(self.tables, title, only_avg=style == "avg")
        return as_latex(self.tables, self.all_notes, self.target, title)

    def to_html(
        self, pictures: Sequence[Picture] = (), more: Sequence[Sheet] = ()
    ) -> str:
        """An HTML page that needs no other file and no network.

        Parameters
        ----------
        pictures : sequence of Picture
        more : sequence of Sheet
            More sheets behind the tables, such as a paper's figures.
        """
        notes = self.all_notes
        return as_page(self.title, self.tables, notes, self.target, pictures, more)

    def _repr_html_(self) -> str:
        """The tables as HTML, for a notebook."""
        return as_fragment(self.tables, self.all_notes, self.target)


def _table(
    runs: list[FoundRun], studies: Sequence[Study], baseline: str | None
) -> Table:
    named = label(runs, studies)
    several = [axis for axis in named.axes if len(axis.points) > 1]
    several = several or named.axes[:1]
    rows = _rows(runs, named, several)
    baselines = _baselines(rows, several, named, studies, baseline)
    first = runs[0].results
    unseen = set.intersection(*(set(run.results.unseen_domains) for run in runs))
    beside = [name for study in studies for name in study.columns]
    columns = [axis.name for axis in several if axis.name in beside]
    if len(columns) == len(several):  # one axis must be left for the rows
        columns = columns[1:]
    return Table(
        title=_title(runs, named.axes),
        domains=list(first.domains),
        unseen=[domain for domain in first.domains if domain in unseen],
        class_names=list(first.class_names),
        axes=several,
        columns=columns,
        rows=rows,
        baselines=baselines,
        notes=[
            *named.notes,
            *_notes_on_data(rows, baselines),
            *_notes_on_rounds(rows),
        ],
        shared={
            axis.name: axis.points[0]
            for axis in named.axes[1:]
            if len(axis.points) == 1
        },
    )


def _place(table: Table, studies: Sequence[Study]) -> list[int]:
    """The place of a table among those of a study: in the order of its axes."""
    return [
        axis.points.index(table.shared[axis.name])
        for study in studies
        for axis in study.axes
        if table.shared.get(axis.name) in axis.points
    ]


def _rows(
    runs: list[FoundRun], named: Labelled, axes: Sequence[Axis]
) -> dict[str, Row]:
    """Rows by name, in the order of the axes."""
    names = [axis.name for axis in axes]
    by_name: dict[str, Row] = {}
    for run, labels in zip(runs, named.labels):
        name = name_of(labels, names) or "all runs"
        row = by_name.setdefault(name, Row(name, labels, {}))
        other = row.runs.setdefault(run.results.seed, run)
        if other is not run:
            raise DataError(
                f"two runs are '{name}' with seed {run.results.seed}: "
                f"'{other.folder}' and '{run.folder}'; leave one of them out"
            )

    def place(row: Row) -> list[int]:
        return [
            axis.points.index(row.labels[axis.name])
            if row.labels.get(axis.name)
            else -1
            for axis in axes
        ]

    return {
        row.name: replace(row, runs=dict(sorted(row.runs.items())))
        for row in sorted(by_name.values(), key=place)
    }


def _baselines(
    rows: dict[str, Row],
    axes: Sequence[Axis],
    named: Labelled,
    studies: Sequence[Study],
    asked: str | None,
) -> dict[str, str]:
    if len(rows) < 2:
        return {}
    if asked is not None:
        return _asked_baselines(rows, axes, asked)
    for study in studies:
        if study.baseline is not None:
            return _beside(rows, study.baseline.axis, study.baseline.name)
    if named.from_study:
        return _beside(rows, axes[0].name, axes[0].points[0])
    return dict.fromkeys(rows, next(iter(rows)))


def _asked_baselines(
    rows: dict[str, Row], axes: Sequence[Axis], asked: str
) -> dict[str, str]:
    if asked in rows:
        return dict.fromkeys(rows, asked)
    points = {
        (axis.name, point)
        for axis in axes
        for point in axis.points
        if asked in (point, f"{axis.name}={point}")
    }
    if len(points) > 1:
        choice = ", ".join(f"'{axis}={point}'" for axis, point in sorted(points))
        raise ConfigError(
            f"baseline: '{asked}' is a point of several axes; name one: {choice}"
        )
    for axis, point in points:
        return _beside(rows, axis, point)
    return {}


def _beside(rows: dict[str, Row], axis: str, point: str) -> dict[str, str]:
    """The name of each row's baseline.

    The baseline is the row that has `point` on `axis` and is otherwise equal.
    """
    by_labels = {frozenset(row.labels.items()): row.name for row in rows.values()}
    others = {
        name: by_labels.get(frozenset({**row.labels, axis: point}.items()))
        for name, row in rows.items()
    }
    return {name: other for name, other in others.items() if other is not None}


def _no_baseline(asked: str, tables: Sequence[Table]) -> ConfigError:
    if all(len(table.rows) < 2 for table in tables):
        return ConfigError(
            "baseline: there is only one row, so nothing can be compared"
        )
    names = dict.fromkeys(
        name
        for table in tables
        for name in [*table.rows, *(p for axis in table.axes for p in axis.points)]
    )
    head = f"baseline: there is no row or point '{asked}'. Name one of these:"
    return ConfigError(Lines([head, *(f"  {name}" for name in names)]))


def _title(runs: Sequence[FoundRun], axes: Sequence[Axis]) -> str:
    """The title of a table.

    It states the data, the numbers of domains and classes, and the points that all rows
    share.
    """
    results = runs[0].results
    given = (stated_at(run.results.config, "data.type") or "data" for run in runs)
    types = sorted({str(name).replace("@ggeur", "") for name in given})
    domains, classes = len(results.domains), len(results.class_names)
    parts = [
        " and ".join(types) if len(types) < 4 else f"{len(types)} kinds of data",
        f"{domains} domains" if domains > 1 else "1 domain",
        f"{classes} classes",
    ]
    shared = [a for a in axes[1:] if len(a.points) == 1]
    parts += [f"{axis.name} {axis.points[0]}" for axis in shared]
    return ", ".join(parts)


def _notes_on_data(rows: dict[str, Row], baselines: dict[str, str]) -> list[str]:
    """Notes on rows of a table that have other data or other seeds."""
    notes = []
    if len({tuple(row.runs) for row in rows.values()}) > 1:
        notes.append(
            "not all rows have the same seeds: differences are over common seeds, "
            "means over each row's own seeds"
        )
    others = [
        name
        for name, baseline in baselines.items()
        if not _same_data(rows[name], rows[baseline])
    ]
    if others:
        notes.append(
            "these rows have other embeddings or splits than their baseline, so "
            f"differences are not only due to the method: {'; '.join(others)}"
        )
    mixed = [name for name, row in rows.items() if _is_of_several_pools(row)]
    if mixed:
        notes.append(
            "the data set changed between the runs of these rows, so their means are "
            f"over different data: {'; '.join(mixed)}"
        )
    return notes


def _notes_on_rounds(rows: dict[str, Row]) -> list[str]:
    """A note on scores that are means over rounds since the first half of a run."""
    early = [
        name
        for name, row in rows.items()
        if any(_is_early(run.results) for run in row.runs.values())
    ]
    if not early:
        return []
    return [
        "these scores are means over the last rounds, which begin in the first half of "
        "the run: they also tell how fast a method learns; to compare the heads that "
        f"are left, run more rounds: {'; '.join(early)}"
    ]


def _is_early(results: Results) -> bool:
    scored, rounds = results.final.rounds, results.rounds
    return len(scored) > 1 and 2 * scored[0] <= rounds[-1].round


def _same_data(one: Row, other: Row) -> bool:
    """Whether two rows have the same data for each common seed, as far as is known."""
    for seed in set(one.runs) & set(other.runs):
        known = _known_data([row.runs[seed] for row in (one, other)])
        if len({data.sha256 for data in known}) > 1:
            return False
    return True


def _is_of_several_pools(row: Row) -> bool:
    """Whether the runs of a row had different data sets, as far as is known."""
    pools = {data.pool for data in _known_data(row.runs.values())}
    return len(pools - {None}) > 1


def _known_data(runs: Iterable[FoundRun]) -> list[DataFingerprint]:
    kept = [run.results.provenance for run in runs]
    return [k.data for k in kept if k is not None and k.data is not None]
