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


def title_of(file: Path) -> str:
    """The first line of an example, without the sign of a comment."""
    return file.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")


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
    listed = "`ggeur configs` lists the bundled configs"
    return _find(name, "config", example_configs, listed, cutoff=0.75)


def find_study(name: str | os.PathLike) -> Path:
    """Path of the file `name`, or else of the bundled study of that name.

    The ending ``.yaml`` of a bundled study may be left out.

    Raises
    ------
    ConfigError
        There is neither such a file nor such a bundled study.
    """
    return _find(name, "study", study_files)


def _find(
    name: str | os.PathLike,
    kind: str,
    bundled: Callable[[], list[Path]],
    listed: str = "",
    cutoff: float = 0.6,
) -> Path:
    """Find a file of this kind; `listed` says in an error where the bundled ones are.

    By default the error names them all.
    """
    path = Path(name)
    # os.path: a name that the system refuses counts as one that does not exist.
    is_folder = os.path.isdir(path)
    if os.path.exists(path) and not is_folder:
        return path
    files = {file.stem: file for file in bundled()}
    for stem, file in files.items():
        if str(name) in (stem, file.name):
            return file
    problem = "is a folder" if is_folder else "does not exist"
    listed = listed or f"the bundled ones are {', '.join(files)}"
    raise ConfigError(
        f"the {kind} file '{path}' {problem}, and no bundled {kind} has that name; "
        f"{listed}{did_you_mean(path.stem, files, cutoff)}"
    )


def _folder(installed: str, in_checkout: str, what: str) -> Path:
    for folder in (_PACKAGE / installed, _PACKAGE.parent / "scripts" / in_checkout):
        if folder.is_dir():
            return folder
    raise ConfigError(
        f"the {what} are not installed beside {_PACKAGE}; install the package again"
    )
