"""A file that records what one client has sent.

If a client has two processes, at most one of them can send.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.lock import locked

from .row_digests import SALT_BYTES


class KeptFile:
    """A file of which this process notices if another one changes it.

    Parameters
    ----------
    folder : str
    name : str
        The file's name in the folder.
    field : str
        The setting that names the folder, for errors.
    number : int
        The client's number.

    Attributes
    ----------
    path : Path
    """

    def __init__(self, folder: str, name: str, field: str, number: int):
        self.path = Path(folder) / name
        self._field, self._number = field, number
        self._seen: bytes | None = None
        self._holds = False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the file's lock. Within, it may be taken again.

        Raises
        ------
        ConfigError
            The folder cannot be made.
        """
        if self._holds:
            yield
            return
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(self.path, error) from error
        lock = self.path.with_name(f"{self.path.name}.lock")
        what = f"what client {self._number} has sent"
        with locked(lock, what, self._unwritable):
            self._holds = True
            try:
                yield
            finally:
                self._holds = False

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock, if no other process has changed the file since `read`.

        Raises
        ------
        ConfigError
            Another process has changed the file.
        """
        with self.locked():
            if self._found() != self._seen:
                raise ConfigError(
                    f"{setting(self._field)}: '{self.path}' was changed by another "
                    f"process: client {self._number} runs twice; nothing more is sent"
                )
            yield

    def read(self) -> bytes | None:
        """The content; None if there is no file. Raises `OSError`."""
        self._seen = self._found()
        return self._seen

    def write(self, data: bytes) -> None:
        """Replace the content, completely or not at all.

        Raises
        ------
        ConfigError
            The file cannot be written, or another process has changed it.
        """
        with self.alone():
            try:
                write_atomically(self.path, data, mode=0o600)
            except ConfigError as error:
                raise self._unwritable(self.path, error) from error
            self._seen = data

    def salt(self) -> bytes:
        """The client's secret, in a file beside this one: made once and never sent.

        Raises
        ------
        ValueError
            It is missing, though this file is there, or it is damaged.
        ConfigError
            It cannot be written.
        """
        path = self.path.with_suffix(".salt")
        if not path.exists() and not self.path.exists():
            try:
                write_atomically(path, secrets.token_bytes(SALT_BYTES), mode=0o600)
            except ConfigError as error:
                raise self._unwritable(path, error) from error
        salt = path.read_bytes() if path.exists() else b""
        if len(salt) != SALT_BYTES:
            raise ValueError(
                f"'{path.name}', which belongs to it, is missing or damaged"
            )
        return salt

    def _found(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def _unwritable(self, path: Path, error: Exception) -> ConfigError:
        return ConfigError(
            f"{setting(self._field)}: {error}. Nothing was sent, because this file "
            "must record it first"
        )
