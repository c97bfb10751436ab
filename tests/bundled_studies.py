"""The bundled study files, and the configs of their cells."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.yaml_file import to_plain
from federatedscope_ggeur.examples import study_folder
from federatedscope_ggeur.extras.studies.plan import PlannedCell
from federatedscope_ggeur.extras.studies.study_file import load_study

STUDIES = sorted(study_folder().glob("*.yaml"))


def content(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@cache
def configs(path: Path) -> list[tuple[PlannedCell, dict]]:
    """Each cell of the first seed and its checked config, as results.json has it.

    Raises ConfigError for the first one that does not pass the check."""
    study = load_study(path)
    return [
        (cell, to_plain(load_config(cell.base, cell.settings)))
        for cell in study.cells(seed=study.seeds[0])
    ]
