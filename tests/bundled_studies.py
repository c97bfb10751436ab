"""The bundled study files, expanded plainly: which runs each asks for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.yaml_file import to_plain
from federatedscope_ggeur.examples import find_config, study_folder

STUDIES = sorted(study_folder().glob("*.yaml"))


class Cell(NamedTuple):
    """A run, but for its seed."""

    labels: dict[str, str]
    base: Path
    settings: dict[str, Any]


def content(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def cells(path: Path) -> Iterator[Cell]:
    """Base, settings, then the points of the axes in their order."""
    study = content(path)
    axes = study["axes"]
    points = {
        axis: {str(v): {axis: v} for v in found} if isinstance(found, list) else found
        for axis, found in axes.items()
    }
    for names in itertools.product(*points.values()):
        base, settings = study["base"], dict(study.get("settings", {}))
        for axis, name in zip(points, names):
            settings.update(points[axis][name])
            base = settings.pop("base", base)
        yield Cell(dict(zip(points, names)), find_config(base), settings)


@cache
def configs(path: Path) -> list[tuple[Cell, dict]]:
    """Each cell and its checked config, as results.json has it.

    Raises ConfigError for the first one that does not pass the check."""
    return [
        (cell, to_plain(load_config(cell.base, cell.settings))) for cell in cells(path)
    ]
