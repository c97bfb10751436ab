"""The plan of a study: its axes, their points, and the cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from federatedscope_ggeur.printable import file_name

from .study import Axis, Point


@dataclass(frozen=True)
class PlannedPoint:
    """A point of an axis, with its settings.

    Attributes
    ----------
    name, folder : str
        The point's name in tables, and the name of its folder.
    settings : dict from key to value
    base : path or None
        The config to start from; None for the config of the study.
    tune : dict from key to list of values
        The values that tuning tries.
    """

    name: str
    folder: str
    settings: Mapping[str, Any]
    base: Path | None = None
    tune: Mapping[str, list] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedCell:
    """One run of a study, before it begins.

    Attributes
    ----------
    labels : dict from axis to point's name
    seed : int
    base : path of the config
    settings : dict from key to value
        Settings that replace or extend those of `base`, without the seed.
    folder : path
        The folder of the run, relative to the study's folder.
    tune : dict from key to list of values
        The values that tuning tries. The cell can run when tuning has chosen from them.
    tuned : dict from key to value
        Settings that tuning chose; they are also in `settings`.
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
        """The names of the cell's points, and its seed, as text."""
        return " / ".join([*self.labels.values(), f"seed {self.seed}"])

    def candidates(self) -> list[PlannedCell]:
        """The runs that tuning tries: this cell with each combination of values."""
        candidates = []
        for values in product(*self.tune.values()):
            chosen = dict(zip(self.tune, values))
            words = [f"{key.split('.')[-1]}_{value}" for key, value in chosen.items()]
            parent = self.folder.parent / slug("_".join(words))
            folder = Path("tuning") / parent / self.folder.name
            candidates.append(replace(self.with_tuned(chosen), folder=folder))
        return candidates

    def with_tuned(self, chosen: Mapping[str, Any]) -> PlannedCell:
        """This cell with the settings that tuning chose, and nothing left to tune."""
        settings = {**self.settings, **chosen}
        return replace(self, settings=settings, tune={}, tuned=dict(chosen))


@dataclass(frozen=True)
class StudyPlan:
    """The content of a study file.

    Attributes
    ----------
    path : path of the file
    title : str
        The first line of the file if that is a comment; else the name of the file.
    base : path of the config that cells start from
    settings : dict from key to value
        Settings of every cell that replace or extend those of `base`.
    axes : tuple of (str, tuple of PlannedPoint)
        Each axis, in order: its name and its points.
    tune : dict from key to list of values
        The values that tuning tries for every cell.
    last : dict from key to value
        The settings of the command line, which replace all others.
    seeds : tuple of int
    columns : tuple of str
    baseline : Point or None
    paper : str or None
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
    workers: int | None

    @property
    def name(self) -> str:
        """The name of the study's file without the extension."""
        return self.path.stem

    def named_axes(self) -> list[Axis]:
        """The axes, each with the names of its points."""
        return [Axis(name, [p.name for p in points]) for name, points in self.axes]

    def cells(self, seed: int | None = None) -> list[PlannedCell]:
        """The cells of all seeds, or of one `seed`.

        Cells are sorted by seed, and then in the order of the axes.
        """
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
    """Turn a point's name into the name of a folder."""
    return file_name(name).lower()
