"""Find the bundled example configs and studies, by name or path."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError, did_you_mean

_PACKAGE = Path(__file__).parent


def example_folder() -> Path:
    """The folder of the example configs: in the package, or in a checkout beside it.

    Raises
    ------
    ConfigError
        Neither folder exists.
    """
    return _folder("example_configs", "example_configs", "example configs")


def example_configs() -> list[Path]:
    """The example configs, with those in folders ``configs`` of extras, by name.

    Raises
    ------
    ConfigError
        They are not installed.
    """
    own = example_folder().glob("*.yaml")
    of_extras = _PACKAGE.glob("extras/*/configs/*.yaml")
    return sorted([*own, *of_extras], key=lambda path: path.name)


def study_files() -> list[Path]:
    """The bundled study files, by name; raises `ConfigError` as `study_folder`."""
    return sorted(study_folder().glob("*.yaml"))


def study_folder() -> Path:
    """The folder of the bundled study files, in the package or in a checkout beside it.

    Raises
    ------
    ConfigError
        Neither folder exists.
    """
    return _folder("study_files", "studies", "study files")


def find_config(name: str | os.PathLike) -> Path:
    """Path of the file `name`, or else of the example config of that name.

    The ending ``.yaml`` of an example may be left out.

    Raises
    ------
    ConfigError
        There is neither such a file nor such an example.
    """
    if (config := _find(name, example_configs)) is not None:
        return config
    bundled = [path.stem for path in example_configs()]
    raise ConfigError(
        f"the config file '{Path(name)}' {_missing(name)}, and no bundled config has "
        "that name; `ggeur configs` lists the bundled configs"
        f"{did_you_mean(Path(name).stem, bundled, 0.75)}"
    )


def find_study(name: str | os.PathLike) -> Path:
    """Path of the file `name`, or else of the bundled study of that name.

    The ending ``.yaml`` of a bundled study may be left out.

    Raises
    ------
    ConfigError
        There is neither such a file nor such a bundled study.
    """
    if (study := _find(name, study_files)) is not None:
        return study
    bundled = [path.stem for path in study_files()]
    raise ConfigError(
        f"the study file '{Path(name)}' {_missing(name)}, and no bundled study has "
        f"that name; the bundled ones are {', '.join(bundled)}"
        f"{did_you_mean(Path(name).stem, bundled)}"
    )


def _folder(installed: str, in_checkout: str, what: str) -> Path:
    for folder in (_PACKAGE / installed, _PACKAGE.parent / "scripts" / in_checkout):
        if folder.is_dir():
            return folder
    raise ConfigError(
        f"the {what} are not installed beside {_PACKAGE}; install the package again"
    )


def _missing(name: str | os.PathLike) -> str:
    return "is a folder" if os.path.isdir(name) else "does not exist"


def _find(name: str | os.PathLike, bundled: Callable[[], list[Path]]) -> Path | None:
    path = Path(name)
    # os.path: a name that the system refuses counts as one that does not exist.
    if os.path.exists(path) and not os.path.isdir(path):
        return path
    if path.name == str(name):
        names = {file.name: file for file in bundled()}
        return names.get(path.name, names.get(f"{path.name}.yaml"))
    return None
