"""Write files so that each is either whole or absent; read files of others safely."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
from pathlib import Path, PurePath
from typing import Any

from federatedscope_ggeur.errors import ConfigError, DataError

#: A pipe is opened without waiting for its other end. Windows knows neither flag.
_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def write_atomically(
    path: str | os.PathLike, data: bytes | str, mode: int = 0o666
) -> None:
    """Write `data` to `path` in one step: readers see the old file or the whole new
    one.

    Parameters
    ----------
    path : path
        The file to write or replace; its folder must exist. A device or a pipe, such
        as ``/dev/stdout``, is written to and not replaced.
    data : bytes or str
        Text is written as UTF-8; its line ends stay as they are.
    mode : int
        The file's permissions, minus the umask. They hold from the first byte on.

    Raises
    ------
    ConfigError
        The file cannot be written, e.g. because the disk is full. No part of a file is
        left then.
    """
    path = Path(path)
    raw = data.encode() if isinstance(data, str) else data
    # Not tempfile: its files are private (0600), but results must follow the umask.
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        if _is_device(path):
            path.write_bytes(raw)
            return
        new = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(new, "wb") as file:
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


def read_regular(path: str | os.PathLike) -> bytes:
    """The bytes of a file whose folder others may have written.

    A link is followed. A device or a pipe is refused: it may have no end.

    Raises
    ------
    OSError
        The file cannot be read, or it is no regular file.
    """
    handle = os.open(path, os.O_RDONLY | _AT_ONCE)
    with open(handle, "rb") as file:
        check_regular(handle)
        return file.read()


def path_below(root: Path, name: str) -> Path:
    """The path of `name` within the folder `root`, which others may have written.

    Raises
    ------
    DataError
        `name` is absolute, contains ``..``, or passes a link within `root`. (Links
        above `root` are followed.)
    """
    parts = PurePath(name).parts
    if not parts or PurePath(name).anchor or ".." in parts:
        raise DataError(f"'{name}' does not lie within '{root}'")
    path = root
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise DataError(f"'{path}' is a link; links are not followed here")
    return path


def refuse_links(root: Path) -> None:
    """Raise `DataError` if anything below `root` is a link, a device or a pipe.

    For a folder into which a command writes on, and which others may have written.
    """
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            mode = os.lstat(path := os.path.join(folder, name)).st_mode
            if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
                raise DataError(
                    f"'{path}' is a link, a device or a pipe; remove it first: only "
                    "files and folders are expected there"
                )


def check_regular(path: int | str | os.PathLike) -> None:
    """Raise `OSError` if `path` is missing, or no regular file: a pipe has no end."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError("this is a folder, a device or a pipe and not a file")


def safetensors_header(data: bytes) -> dict[str, Any]:
    """The header of a safetensors file: its tensors, and its ``__metadata__``."""
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def _is_device(path: Path) -> bool:
    """Whether `path` is a device or a pipe. ``/dev/stdout`` may also lead to a file."""
    other = path.exists() and not path.is_file() and not path.is_dir()
    return other or path.parent == Path("/dev")
