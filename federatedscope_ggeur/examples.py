"""The bundled example configs, and finding a config by its name or path."""

from __future__ import annotations

import os
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError

_PACKAGE = Path(__file__).parent


def example_folder() -> Path:
    """Where the example configs are: in the package, or in a checkout beside it.

    Raises
    ------
    ConfigError
        They are in neither.
    """
    for folder in (
        _PACKAGE / "example_configs",
        _PACKAGE.parent / "scripts" / "example_configs",
    ):
        if folder.is_dir():
            return folder
    raise ConfigError(
        f"the example configs are not installed beside {_PACKAGE}; install the package "
        "again"
    )


def find_config(name: str | os.PathLike) -> Path:
    """The file `name`, or the example config of that name, with or without ``.yaml``.

    Raises
    ------
    ConfigError
        There is neither.
    """
    path = Path(name)
    # os.path: a name that the system does not take is one that does not exist.
    if os.path.exists(path) and not os.path.isdir(path):
        return path
    if path.name == str(name):
        for file in (path.name, f"{path.name}.yaml"):
            example = example_folder() / file
            if os.path.isfile(example):
                return example
    raise ConfigError(
        f"the config file '{path}' does not exist, and no bundled one has that name; "
        "`federatedscope-ggeur configs` lists them"
    )


def find_study(name: str | os.PathLike) -> Path:
    """Stands here until the studies' own branch brings it."""
    return Path(name)
