"""Write files so that each is either whole or absent; read safetensors headers."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

from federatedscope_ggeur.errors import ConfigError


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


def safetensors_header(data: bytes) -> dict[str, Any]:
    """The header of a safetensors file: its tensors, and its ``__metadata__``."""
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def _is_device(path: Path) -> bool:
    """Whether `path` is a device or a pipe. ``/dev/stdout`` may also lead to a file."""
    other = path.exists() and not path.is_file() and not path.is_dir()
    return other or path.parent == Path("/dev")
