"""Files that are either whole or absent, and folders that are never reused."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from datetime import datetime
from itertools import count
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError


def write_atomically(path: str | os.PathLike, data: bytes | str) -> None:
    """Write `data` to `path` so that a reader sees the old file or the whole new one.

    Parameters
    ----------
    path : path
        The file to write or replace; its folder must exist.
    data : bytes or str
        Text is written as UTF-8 with its line ends as they are.

    Raises
    ------
    ConfigError
        If the file cannot be written, e.g. because the disk is full; nothing is left
        behind.
    """
    path = Path(path)
    raw = data.encode() if isinstance(data, str) else data
    # Not tempfile: its files are private (0600), a run's results follow the umask.
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            problem = error.strerror or error
            raise ConfigError(f"cannot write '{path}': {problem}") from error
        raise


def new_run_folder(outdir: str | os.PathLike, expname: str) -> Path:
    """Make a new, empty folder for one run, as FederatedScope names it.

    The folder is ``outdir/expname`` or, where that exists already,
    ``outdir/expname/sub_exp_<YYYYmmddHHMMSS>``, with ``_2``, ``_3``, ... behind it
    for further runs within that second. Safe against runs that start together.

    Raises
    ------
    ConfigError
        If the folder cannot be made, e.g. because a file is in the way.
    """
    parent = Path(outdir, expname)
    try:
        parent.parent.mkdir(parents=True, exist_ok=True)
        return next(folder for folder in _candidates(parent) if _made(folder, parent))
    except OSError as error:
        raise ConfigError(
            f"cannot make a folder for the run in '{parent}': "
            f"{_obstacle(parent) or error.strerror}; "
            f"set 'outdir' and 'expname' to a folder that can be written to"
        ) from error


def _obstacle(folder: Path) -> str | None:
    """What stands where `folder`, or a folder above it, would have to be."""
    for path in (folder, *folder.parents):
        if os.path.lexists(path):
            return None if path.is_dir() else f"'{path}' is not a folder"
    return None


def _candidates(parent: Path) -> Iterator[Path]:
    yield parent
    stem = datetime.now().strftime("sub_exp_%Y%m%d%H%M%S")
    yield parent / stem
    yield from (parent / f"{stem}_{number}" for number in count(2))


def _made(folder: Path, parent: Path) -> bool:
    try:
        folder.mkdir()
    except FileExistsError:
        if not parent.is_dir():
            raise
        return False
    return True
