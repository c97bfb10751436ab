"""A file that records what one client has sent.

If a client has two processes, at most one of them can send.

Digests by which a client recognises rows that it has released before.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.lock import locked

#: Bytes of the digest of a row, and of a client's secret.
ROW_BYTES, SALT_BYTES = 16, 32


@dataclass(frozen=True)
class RowDigests:
    """Digests of a client's rows, made with its secret salt.

    Attributes
    ----------
    rows : frozenset of bytes
        One digest for each row. They show whether two sets of rows overlap.
    whole : bytes
        One digest of all rows with their class names. It shows whether two sets are
        equal. The order of rows and classes does not matter. A row that occurs twice
        counts twice.
    """

    rows: frozenset[bytes]
    whole: bytes


def row_digests(
    features: Tensor, labels: Tensor, class_names: Sequence[str], salt: bytes
) -> RowDigests:
    """Compute the digests of rows [n, D], float32, with labels [n]."""
    rows, with_class = digests_of_each(features, labels, class_names, salt)
    whole = hashlib.blake2b(digest_size=SALT_BYTES, key=salt, person=b"rows")
    whole.update(b"".join(sorted(with_class)))
    return RowDigests(frozenset(rows), whole.digest())


def digests_of_each(
    features: Tensor, labels: Tensor, class_names: Sequence[str], salt: bytes
) -> tuple[list[bytes], list[bytes]]:
    """The digests of each row, without its class and with the class's name."""
    data = features.detach().cpu().numpy().astype("<f4") + 0.0  # so that -0.0 is 0.0
    plain = hashlib.blake2b(digest_size=ROW_BYTES, key=salt, person=b"row")
    named = hashlib.blake2b(digest_size=ROW_BYTES, key=salt, person=b"row of a class")
    names = [name.encode("utf-8", "surrogatepass") for name in class_names]
    rows, with_class = [], []
    for row, label in zip(data, labels.tolist()):
        alone, labelled = plain.copy(), named.copy()
        alone.update(row)
        rows.append(alone.digest())
        labelled.update(rows[-1] + names[label])
        with_class.append(labelled.digest())
    return rows, with_class


class KeptFile:
    """A file of which this process notices if another one changes it.

    Parameters
    ----------
    folder : str
        With "" there is no file: `read` finds nothing, and nothing is to be written.
    name : str
        The file's name in the folder.
    field : str
        The setting that names the folder, for errors.
    number : int
        The client's number.

    Attributes
    ----------
    path : Path
    is_kept : bool
        Whether there is a folder.
    """

    def __init__(self, folder: str, name: str, field: str, number: int):
        self.path, self.is_kept = Path(folder) / name, bool(folder)
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
        if self._holds or not self.is_kept:
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
        """Replace the content, completely or not at all; nothing if nothing is kept.

        Raises
        ------
        ConfigError
            The file cannot be written, or another process has changed it.
        """
        if not self.is_kept:
            return
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
        if not self.is_kept:
            return secrets.token_bytes(SALT_BYTES)
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
        with suppress(FileNotFoundError):
            return self.path.read_bytes() if self.is_kept else None
        return None

    def _unwritable(self, path: Path, error: Exception) -> ConfigError:
        return ConfigError(
            f"{setting(self._field)}: {error}. Nothing was sent, because this file "
            "must record it first"
        )
