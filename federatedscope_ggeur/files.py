"""Write files so that each is either whole or absent; read files of others safely."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from federatedscope_ggeur.errors import ConfigError, DataError

#: What the name of a file ends with until the file is whole.
_UNFINISHED = ".tmp"
_FULL = errno.ENOSPC, errno.EDQUOT
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
    temporary = path.with_name(f".{secrets.token_hex(8)}{_UNFINISHED}")
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
            raise _unwritable(path, error) from error
        raise


def _unwritable(path: Path, error: OSError) -> ConfigError:
    said = f"cannot write '{path}': {error.strerror or error}"
    if error.errno in _FULL:
        said += f"; the disk of '{path.parent.absolute()}' is full"
    return ConfigError(said)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed processes had not written whole, below a process's own folder.

    No other process may be writing there.
    """
    for path in folder.rglob(f".{'[0-9a-f]' * 16}{_UNFINISHED}"):
        with contextlib.suppress(OSError):
            path.unlink()


def write_once(path: Path, data: bytes | str, mode: int = 0o666) -> None:
    """Write a file that never changes, and sync its folder, too.

    Parameters
    ----------
    path, data, mode
        See `write_atomically`. A file with the same bytes may be there already.

    Raises
    ------
    ConfigError
        The file cannot be written, or there is another one.
    """
    raw = data.encode() if isinstance(data, str) else data
    try:
        if read_regular(path, most=len(raw), follow=False) == raw:
            return
        problem = "a file with other bytes is there, and nothing is overwritten"
        raise ConfigError(f"cannot write '{path}': {problem}")
    except FileNotFoundError:
        write_atomically(path, raw, mode)
    except OSError as error:
        raise _unwritable(path, error) from error
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Let a folder's entries survive a power cut, if the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_folder(
    folder: Path, files: Mapping[str, bytes], private: bool = False
) -> None:
    """Make a folder with these files, or make nothing.

    Parameters
    ----------
    folder : path
        It must not exist, or be empty. Missing folders above it are made.
    files : mapping from name to bytes
    private : bool
        Whether only the owner may read the folder.

    Raises
    ------
    OSError
        The folder cannot be made.
    ConfigError
        A file cannot be written.
    """
    modes = (0o700, 0o600) if private else (0o777, 0o666)
    temporary = folder.with_name(f".{secrets.token_hex(8)}{_UNFINISHED}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir(modes[0])
        for name, data in files.items():
            write_atomically(temporary / name, data, modes[1])
        sync_folder(temporary)
        if folder.is_dir():
            folder.rmdir()
        temporary.rename(folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_regular(
    path: str | os.PathLike, most: int | None = None, follow: bool = True
) -> bytes:
    """The bytes of a file whose folder others may have written.

    A device or a pipe is refused: it may have no end.

    Parameters
    ----------
    path : path
    most : int, optional
        The largest number of bytes that the file may have.
    follow : bool
        Whether a link is followed.

    Raises
    ------
    OSError
        The file cannot be read, is too long, or is no regular file.
    """
    flags = _AT_ONCE if follow else _AT_ONCE | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(path, os.O_RDONLY | flags)
    with open(handle, "rb") as file:
        check_regular(handle)
        if most is None:
            return file.read()
        size = os.fstat(handle).st_size
        data = file.read(most + 1) if size <= most else b""
        if max(size, len(data)) > most:
            raise OSError(f"it has {size} bytes, and at most {most} may come")
        return data


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
