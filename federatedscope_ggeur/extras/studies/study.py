"""The files of a study: study.json in its folder, cell.json in the folder of each run.

docs/studies.md describes every field. Reports take the names of rows and their order
from these files.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, TypeVar, Union

from federatedscope_ggeur.errors import DataError, shown
from federatedscope_ggeur.files import read_regular
from federatedscope_ggeur.reporting.json_values import (
    as_json_value,
    from_json_value,
    json_text,
    parse_json,
)
from federatedscope_ggeur.reporting.run_files import CELL_FILE

STUDY_FILE = "study.json"
STUDY_VERSION = 1
T = TypeVar("T")


@dataclass(frozen=True)
class Point:
    """One value on one axis of a study, such as one method or one data set."""

    axis: str
    name: str


@dataclass(frozen=True)
class Axis:
    """An axis, and the names of its points, in order."""

    name: str
    points: list[str]


@dataclass(frozen=True)
class Tried:
    """Settings that tuning tried, and their score.

    `value` is None if the run failed; `problem` says why.
    """

    settings: dict[str, Any]
    value: Optional[float]
    problem: str = ""


@dataclass(frozen=True)
class Tuned:
    """The settings that tuning chose for one row.

    Attributes
    ----------
    labels : dict from axis to point's name
        The row.
    seed : int
        The seed of the runs that were tried.
    metric : str
        The metric on validation rows, such as ``"val_acc"``.
    tried : list of Tried
    chosen : dict
        Settings; empty if every try failed.
    """

    labels: dict[str, str]
    seed: int
    metric: str
    tried: list[Tried]
    chosen: dict[str, Any]


@dataclass(frozen=True)
class Failed:
    """A cell that has no results, and the reason."""

    labels: dict[str, str]
    seed: int
    problem: str


@dataclass(frozen=True)
class Study:
    """The content of ``study.json``, which states how the runs in a folder belong
    together.

    Attributes
    ----------
    name, title : str
    axes : list of Axis
        In order; tables have a row for each point of the first axis.
    seeds : list of int
    columns : list of str
        Axes whose points stand side by side in tables, not below each other.
    baseline : Point or None
        Each run is compared with the run that has this point and is otherwise equal.
    paper : str or None
        The table of the paper that the study reproduces, such as ``"table7"``.
    tuned : list of Tuned
    failed : list of Failed
        The cells that failed when the study last ran.
    """

    name: str
    title: str
    axes: list[Axis]
    seeds: list[int]
    columns: list[str] = field(default_factory=list)
    baseline: Optional[Point] = None
    paper: Optional[str] = None
    tuned: list[Tuned] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    version: int = STUDY_VERSION


@dataclass(frozen=True)
class Cell:
    """The content of ``cell.json``, which states the cell of a study that a run belongs
    to.

    Attributes
    ----------
    study : str
        The study's name.
    labels : dict from axis to point's name
    seed : int
    tuned : dict
        The settings of the run that tuning chose.
    settings : dict
        All settings of the run, by key, without the seed and the place of its output. A
        run in this folder belongs to this cell only if it has these settings.
    engine : str
        "embedded". Release 0.1.0 had another one.
    """

    study: str
    labels: dict[str, str]
    seed: int
    tuned: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    engine: str = "embedded"
    version: int = STUDY_VERSION


def to_text(record: Union[Study, Cell]) -> str:
    """The text of the file that holds `record`."""
    return json_text(as_json_value(record, "study"))


def read_study(folder: Path) -> Optional[Study]:
    """Read ``study.json`` in `folder`; None if there is no such file.

    Raises
    ------
    DataError
        The file cannot be read; the message names it.
    """
    return _read(Study, Path(folder) / STUDY_FILE)


def read_cell(folder: Path) -> Optional[Cell]:
    """Read ``cell.json`` in `folder`; None if there is no such file.

    Raises
    ------
    DataError
        The file cannot be read; the message names it.
    """
    return _read(Cell, Path(folder) / CELL_FILE)


def _read(kind: type[T], path: Path) -> Optional[T]:
    try:
        text = read_regular(path).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"'{path}': cannot be read: {error}") from error
    try:
        raw = parse_json(text)
    except DataError as error:
        raise DataError(f"'{path}': {error}") from error
    version = raw.get("version") if isinstance(raw, dict) else None
    if version != STUDY_VERSION:
        raise DataError(
            f"'{path}': the file has version {shown(version)}, but this "
            f"federatedscope-ggeur reads version {STUDY_VERSION}; use the release of "
            "federatedscope-ggeur that wrote the file"
        )
    return from_json_value(kind, raw, f"'{path}'")
