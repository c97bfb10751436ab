"""A client's journal of secure sums: the sent vectors, and the rows behind them.

The client writes the journal before it sends an answer. So a restarted client sends the
same bytes for the same request. With the journal the client also refuses a second sum
if its difference from an earlier sum would reveal single rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, MessageError, setting
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.kept_file import ROW_BYTES, KeptFile
from federatedscope_ggeur.federation.wire import as_bytes, of_bytes

#: The version of the file format. In version 1, digests had class numbers, not names.
_FORM = 2


@dataclass(frozen=True)
class PastSum:
    """A past session in which the client has sent a masked vector.

    Attributes
    ----------
    session : str
    commitments : mapping from client number to bytes
        `RowDigests.whole` of each client of the roster.
    settings : str
        A digest of the settings that change totals.
    rows : frozenset of bytes
        `RowDigests.rows` of this client.
    named : mapping from name to int, or None
        The summed classes, each with its number of rows over all clients. None if the
        session ended before the stage of means.
    """

    session: str
    commitments: Mapping[int, bytes]
    settings: str
    rows: frozenset[bytes]
    named: Mapping[str, int] | None = None

    def is_alike(self, other: PastSum) -> bool:
        """Whether both sums are over the same rows of the same clients."""
        mine = self.commitments, self.settings, self.rows
        return mine == (other.commitments, other.settings, other.rows)

    def repeated_by(self, other: PastSum) -> bool:
        """Whether `other` contains all information of this sum."""
        return self.is_alike(other) and self.named in (None, other.named)


@dataclass(frozen=True)
class Current:
    """The current session, or the last one if none is open.

    Attributes
    ----------
    session : bytes
    roster : tuple of int
    secret : bytes
        The secret of the mask key. It is empty once the last stage is sent.
    key, signature : bytes
    chain : bytes
        A digest of all that the server has sent in the session so far.
    requests : mapping from stage to str
        A digest of the request of each stage.
    vectors : mapping from stage to Tensor
        The vector that the client sent in each stage.
    about : bytes
        A digest of the rows, classes and settings of the session.
    peers : bytes
        The keys and commitments of the roster, as they came with the first stage.
    """

    session: bytes
    roster: tuple[int, ...]
    secret: bytes
    key: bytes
    signature: bytes
    chain: bytes
    about: bytes
    requests: dict[str, str] = field(default_factory=dict)
    vectors: dict[str, Tensor] = field(default_factory=dict)
    peers: bytes = b""


class Journal:
    """The journal of one client, on disk, or in memory if `folder` is "".

    Parameters
    ----------
    folder : str
    number : int

    Attributes
    ----------
    past : tuple of PastSum
    current : Current or None
    salt : bytes
        The client's secret, made once and never sent. It goes into all digests of rows,
        so nobody can find rows by guessing.

    Raises
    ------
    ConfigError
        A file cannot be read or belongs to another client, or the salt cannot be
        written.
    """

    def __init__(self, folder: str, number: int):
        self._number = number
        self.past: tuple[PastSum, ...] = ()
        self.current: Current | None = None
        name = f"client_{number:04d}.sums"
        self._file = KeptFile(folder, name, "secure_sums_store", number)
        with self._file.locked(), _readable(self._file.path):
            held = self._file.read()
            message = None if held is None else self._opened(held)
            self.salt = self._file.salt()
            if message is not None:
                self._load(message)

    def alone(self) -> AbstractContextManager[None]:
        """Lock the journal, so that no other process calls `keep` at the same time.

        Raises
        ------
        ConfigError
            Another process has changed the journal.
        """
        return self._file.alone()

    def keep(self, current: Current, past: Sequence[PastSum] | None = None) -> None:
        """Write the state of the session, completely or not at all.

        Raises
        ------
        ConfigError
            The file cannot be written, or another process has changed it.
        """
        before = self.past, self.current
        self.current = current
        if past is not None:
            self.past = tuple(past)
        try:
            self._save(current)
        except BaseException:
            self.past, self.current = before
            raise

    @property
    def _mark(self) -> str:
        """A hash of the salt. The journal stores it to recognise its own salt file."""
        return hashlib.blake2b(key=self.salt, person=b"journal").hexdigest()

    def _save(self, now: Current) -> None:
        if not self._file.is_kept:
            return
        tensors = {
            f"rows.{i}": as_bytes(b"".join(sorted(one.rows))).reshape(-1, ROW_BYTES)
            for i, one in enumerate(self.past)
        }
        tensors.update(wire.under("vector", now.vectors))
        tensors["roster"] = torch.tensor(now.roster, dtype=torch.int64)
        for name in _PARTS:
            tensors[name] = as_bytes(getattr(now, name))
        past = [
            [
                one.session,
                {str(k): digest.hex() for k, digest in one.commitments.items()},
                one.settings,
                None if one.named is None else dict(one.named),
            ]
            for one in self.past
        ]
        numbers = {
            "client": self._number,
            "form": _FORM,
            "salt": self._mark,
            "requests": now.requests,
            "past": json.dumps(past),
        }
        # The file holds the secret of a session.
        sealed = wire.sealed(numbers, tensors)
        self._file.write(wire.pack("sums journal", sealed, tensors))

    def _opened(self, data: bytes) -> wire.Message:
        message = wire.unpack(data, "sums journal", f"client {self._number}")
        message.client()
        message.check_content()
        if not message.has("form") or message.integer("form") != _FORM:
            raise ValueError(
                "another version of this program wrote it, so this version cannot read "
                "which rows were summed before"
            )
        return message

    def _load(self, message: wire.Message) -> None:
        if message.text("salt") != self._mark:
            raise ValueError("the salt file beside it belongs to another journal")
        past = []
        for i, (session, commitments, settings, named) in enumerate(
            json.loads(message.text("past"))
        ):
            rows = of_bytes(message.tensor(f"rows.{i}", torch.uint8, (None, ROW_BYTES)))
            digests = {rows[j : j + ROW_BYTES] for j in range(0, len(rows), ROW_BYTES)}
            said = {int(k): bytes.fromhex(one) for k, one in commitments.items()}
            past.append(PastSum(session, said, settings, frozenset(digests), named))
        self.past = tuple(past)
        self.current = Current(
            **{
                name: of_bytes(message.tensor(name, torch.uint8, (None,)))
                for name in _PARTS
            },
            roster=tuple(message.tensor("roster", torch.int64, (None,)).tolist()),
            requests=message.mapping("requests"),
            vectors=message.tensors_under("vector"),
        )


#: The fields of `Current` that are bytes.
_PARTS = ("session", "secret", "key", "signature", "chain", "about", "peers")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, MessageError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{setting('secure_sums_store')}: the journal '{path}' cannot be used: "
            f"{error}. Do not delete it: it records what this client has sent. Name "
            "another folder only if the rows are no secret, or were in no earlier "
            "sum"
        ) from error
