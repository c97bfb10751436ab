"""``ggeur configs``: lists or copies the example configs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.examples import example_configs, title_of

from . import PROGRAM, command_parser


def configs(arguments: Sequence[str]) -> int:
    """List the example configs, or copy them into a folder without such files."""
    parser = command_parser("configs")
    parser.add_argument("folder", nargs="?", help="the folder to copy them into")
    options = parser.parse_args(arguments)
    files = example_configs()
    if options.folder is None:
        for file in files:
            print(f"{file.name}: {title_of(file)}")
        print(f"\nrun one: {PROGRAM} --cfg ggeur_quickstart.yaml")
        return 0
    try:
        _copy(files, Path(options.folder))
    except OSError as error:
        where = error.filename2 or error.filename or options.folder
        raise ConfigError(
            f"cannot copy the example configs into '{options.folder}': "
            f"{error.strerror or error}: '{where}'"
        ) from error
    return 0


def _copy(files: Sequence[Path], folder: Path) -> None:
    if os.path.lexists(folder) and not folder.is_dir():
        raise ConfigError(
            f"'{folder}' is not a folder, so nothing was copied; name a folder"
        )
    taken = [file.name for file in files if os.path.lexists(folder / file.name)]
    if taken:
        raise ConfigError(
            f"{folder} already holds {', '.join(taken)}; nothing was copied. "
            "Name another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copyfile(file, folder / file.name)
        print(folder / file.name)
