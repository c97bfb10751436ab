"""Files that are either whole or absent."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError


def write_atomically(
    path: str | os.PathLike, data: bytes | str, mode: int = 0o666
) -> None:
    """Write `data` to `path` so that a reader sees the old file or the whole new one.

    Parameters
    ----------
    path : path
        The file to write or replace; its folder must exist.
    data : bytes or str
        Text is written as UTF-8 with its line ends as they are.
    mode : int
        Who may read it from the first byte on, less the umask.

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
