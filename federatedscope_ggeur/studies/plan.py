"""The plan of a study: its axes, their points, and the cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from federatedscope_ggeur.printable import file_name
from federatedscope_ggeur.reporting.study import Axis, Point


@dataclass(frozen=True)
class PlannedPoint:
    """A point of an axis, with its settings.

    Attributes
    ----------
    name, folder : str
        Its name in tables, and as a folder.
    settings : dict from key to value
    base : path or None
        The config to start from, instead of the study's.
    tune : dict from key to list of values
    """

    name: str
    folder: str
    settings: Mapping[str, Any]
    base: Path | None = None
    tune: Mapping[str, list] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedCell:
    """One run of a study.

    Attributes
    ----------
    labels : dict from axis to point's name
    seed : int
    base : path of the config
    settings : dict from key to value
        They go over the base; the seed is not among them.
    folder : path
        The folder of its run, relative to the study's folder.
    tune : dict from key to list of values
        Settings that tuning must choose before it can run.
    tuned : dict from key to value
        Settings that tuning chose; `settings` has them, too.
    """

    labels: Mapping[str, str]
    seed: int
    base: Path
    settings: Mapping[str, Any]
    folder: Path
    tune: Mapping[str, list]
    tuned: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its points and its seed, as text."""
        return " / ".join([*self.labels.values(), f"seed {self.seed}"])

    def candidates(self) -> list[PlannedCell]:
        """The runs of tuning: this cell with each combination of values."""
        found = []
        for values in product(*self.tune.values()):
            chosen = dict(zip(self.tune, values))
            words = [f"{key.split('.')[-1]}_{value}" for key, value in chosen.items()]
            parent = self.folder.parent / slug("_".join(words))
            folder = Path("tuning") / parent / self.folder.name
            found.append(replace(self.with_tuned(chosen), folder=folder))
        return found

    def with_tuned(self, chosen: Mapping[str, Any]) -> PlannedCell:
        """This cell with the settings that tuning chose."""
        settings = {**self.settings, **chosen}
        return replace(self, settings=settings, tune={}, tuned=dict(chosen))


@dataclass(frozen=True)
class StudyPlan:
    """The content of a study file.

    Attributes
    ----------
    path : path of the file
    title : str
        The first line, if it is a comment; else the name of the file.
    base : path of the config that cells start from
    settings : dict from key to value
        They go over the base in every cell.
    axes : tuple of (str, tuple of PlannedPoint)
        In order.
    tune : dict from key to list of values
        The tuning of every cell.
    last : dict from key to value
        The settings of the command line, which go over all others.
    seeds : tuple of int
    columns : tuple of str
    baseline : Point or None
    paper : str or None
    engine : str
    workers : int or None
    """

    path: Path
    title: str
    base: Path
    settings: Mapping[str, Any]
    axes: tuple[tuple[str, tuple[PlannedPoint, ...]], ...]
    tune: Mapping[str, list]
    last: Mapping[str, Any]
    seeds: tuple[int, ...]
    columns: tuple[str, ...]
    baseline: Point | None
    paper: str | None
    engine: str
    workers: int | None

    @property
    def name(self) -> str:
        """The file's name without its extension."""
        return self.path.stem

    def named_axes(self) -> list[Axis]:
        """The axes and the names of their points."""
        return [Axis(name, [p.name for p in points]) for name, points in self.axes]

    def cells(self, seed: int | None = None) -> list[PlannedCell]:
        """All cells, seed by seed, in the order of the axes; or those of one seed."""
        seeds = self.seeds if seed is None else (seed,)
        return [cell for seed in seeds for cell in self._rows(seed)]

    def _rows(self, seed: int) -> Iterator[PlannedCell]:
        names = [name for name, _ in self.axes]
        for points in product(*(points for _, points in self.axes)):
            base, settings, tune = self.base, dict(self.settings), dict(self.tune)
            for point in points:
                base = point.base or base
                settings.update(point.settings)
                tune.update(point.tune)
            settings.update(self.last)
            yield PlannedCell(
                labels={name: point.name for name, point in zip(names, points)},
                seed=seed,
                base=base,
                settings=settings,
                folder=Path(*(point.folder for point in points), f"seed_{seed}"),
                tune={k: v for k, v in tune.items() if k not in self.last},
                tuned={},
            )


def slug(name: str) -> str:
    """A name as the name of a folder."""
    return file_name(name).lower()
