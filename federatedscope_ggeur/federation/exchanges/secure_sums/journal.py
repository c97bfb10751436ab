"""What a client keeps of secure sums: what it has sent, and over which rows.

It is on the disk before it is sent. A client that starts again sends the same bytes
for the same request and makes no second sum that could be subtracted from the first.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, MessageError, setting
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.exchanges.secure_sums.messages import (
    as_bytes,
    of_bytes,
)
from federatedscope_ggeur.files import write_atomically

_ROW = 16


@dataclass(frozen=True)
class PastSum:
    """A session in which the client has sent a masked vector.

    Attributes
    ----------
    session : str
    roster : tuple of int
    settings : str
        A digest of what totals depend on beside rows.
    rows : frozenset of bytes
        Digests of the client's rows and labels.
    classes, counts : tuple of int, or None
        What was named; None where it did not come so far.
    """

    session: str
    roster: tuple[int, ...]
    settings: str
    rows: frozenset[bytes]
    classes: tuple[int, ...] | None = None
    counts: tuple[int, ...] | None = None

    def repeated_by(self, other: PastSum) -> bool:
        """Whether all that this says the `other` says as well."""
        same = (self.roster, self.settings) == (other.roster, other.settings)
        named = self.classes, self.counts
        known = named in ((None, None), (other.classes, other.counts))
        return same and known and self.rows == other.rows


@dataclass(frozen=True)
class Current:
    """The session under way, or the last one.

    Attributes
    ----------
    session : bytes
    roster : tuple of int
    secret : bytes
        Of the mask key; empty once the last stage is sent.
    key, signature : bytes
    chain : bytes
        The digest of all that came down so far.
    requests : mapping from stage to str
        Digests of what each stage was asked by.
    vectors : mapping from stage to Tensor
        What was sent.
    keys : bytes
        All keys of the roster, as they came with the first stage.
    """

    session: bytes
    roster: tuple[int, ...]
    secret: bytes
    key: bytes
    signature: bytes
    chain: bytes
    requests: dict[str, str] = field(default_factory=dict)
    vectors: dict[str, Tensor] = field(default_factory=dict)
    keys: bytes = b""


def row_digests(features: Tensor, labels: Tensor) -> frozenset[bytes]:
    """A digest of each row [D] with its label, and of which of several equal ones it
    is: a row that comes twice is another set of rows."""
    rows = features.detach().contiguous().cpu().numpy()
    seen: Counter[bytes] = Counter()
    found = set()
    for row, label in zip(rows, labels.tolist()):
        once = hashlib.sha256(row.tobytes() + b"%d" % label).digest()
        seen[once] += 1
        found.add(hashlib.sha256(once + b"%d" % seen[once]).digest()[:_ROW])
    return frozenset(found)


class Journal:
    """Of one client, on the disk or, without a folder, in this process' memory.

    Parameters
    ----------
    folder : str
    number : int

    Attributes
    ----------
    past : tuple of PastSum
    current : Current or None

    Raises
    ------
    ConfigError
        The file is there and cannot be read, or is not this client's.
    """

    def __init__(self, folder: str, number: int):
        self._path = Path(folder) / f"client_{number:04d}.sums" if folder else None
        self._number = number
        self.past: tuple[PastSum, ...] = ()
        self.current: Current | None = None
        if self._path is not None and self._path.exists():
            try:
                self._load(self._path.read_bytes())
            except (OSError, MessageError, ValueError, KeyError, TypeError) as error:
                raise ConfigError(
                    f"{setting('secure_sums_store')}: '{self._path}' cannot be used: "
                    f"{error}; it says what this client has sent, so do not delete it "
                    "unless its rows are no secret"
                ) from error

    def keep(self, current: Current, past: Sequence[PastSum] | None = None) -> None:
        """Note where the session is, whole or not at all.

        Raises
        ------
        ConfigError
            It cannot be written.
        """
        before = self.past, self.current
        self.current = current
        if past is not None:
            self.past = tuple(past)
        try:
            self._save()
        except BaseException:
            self.past, self.current = before
            raise

    def _save(self) -> None:
        if self._path is None or self.current is None:
            return
        now = self.current
        tensors = {
            f"rows.{i}": as_bytes(b"".join(sorted(one.rows))).reshape(-1, _ROW)
            for i, one in enumerate(self.past)
        }
        tensors.update(wire.under("vector", now.vectors))
        tensors["roster"] = torch.tensor(now.roster, dtype=torch.int64)
        for name in ("session", "secret", "key", "signature", "chain", "keys"):
            tensors[name] = as_bytes(getattr(now, name))
        past = [
            [one.session, one.roster, one.settings, one.classes, one.counts]
            for one in self.past
        ]
        numbers = {
            "client": self._number,
            "requests": now.requests,
            "past": json.dumps(past),
        }
        packed = wire.pack("sums journal", wire.sealed(numbers, tensors), tensors)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # It holds the secret of a session.
            write_atomically(self._path, packed, mode=0o600)
        except (OSError, ConfigError) as error:
            raise ConfigError(
                f"{setting('secure_sums_store')}: {error}; nothing is sent that is not "
                "noted there first"
            ) from error

    def _load(self, data: bytes) -> None:
        message = wire.unpack(data, "sums journal", f"client {self._number}")
        message.client()
        message.check_content()

        def held(name: str) -> bytes:
            return of_bytes(message.tensor(name, torch.uint8, (None,)))

        past = []
        for i, (session, roster, settings, classes, counts) in enumerate(
            json.loads(message.text("past"))
        ):
            rows = of_bytes(message.tensor(f"rows.{i}", torch.uint8, (None, _ROW)))
            digests = {rows[j : j + _ROW] for j in range(0, len(rows), _ROW)}
            named = [None if n is None else tuple(n) for n in (classes, counts)]
            past.append(
                PastSum(session, tuple(roster), settings, frozenset(digests), *named)
            )
        self.past = tuple(past)
        names = ("session", "secret", "key", "signature", "chain", "keys")
        parts = {name: held(name) for name in names}
        self.current = Current(
            **parts,
            roster=tuple(message.tensor("roster", torch.int64, (None,)).tolist()),
            requests=message.mapping("requests"),
            vectors=message.tensors_under("vector"),
        )
