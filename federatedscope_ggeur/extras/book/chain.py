"""The chain of a book's changes: commitments, hashes and signatures.

Each link has the hash of the link before it. A link that adds statistics has a
commitment: a salted digest of the statistics. The book stores the salt with the
statistics and deletes both together. Without the salt, nobody can test a guess of the
deleted statistics.

A client's statistics as a file of the book.

The messages of a book: the client's statistics, and the server's receipt.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from federatedscope_ggeur.errors import ConfigError, DataError, StatisticsError
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.files import safetensors_header

from .grid import Grid, GridStatistics

#: The kinds of changes.
KINDS = ("begin", "join", "leave", "forget", "withdraw", "classes", "window")

#: The names that `signed` adds.
SIGNATURE = ("public_key", "signature")
#: The types of a link's values in JSON.
_TYPES: Mapping[str, tuple[type, ...]] = {
    "number": (int,),
    "kind": (str,),
    "who": (int, type(None)),
    "when": (str,),
    "gone": (list, tuple),
    "commitment": (str,),
    "before": (str,),
}


@dataclass(frozen=True)
class ChainLink:
    """One change of the book: a link of the chain.

    Attributes
    ----------
    number : int
        The link's place in the chain, from 0.
    kind : str
        One of `KINDS`.
    who : int or None
        The client.
    when : str
        Date and time, UTC.
    gone : tuple of int
        The numbers of the links whose entries this change removes.
    commitment : str
        The commitment of the entry that this change adds; "" if it adds none.
    before : str
        The hash of the link before this one.
    """

    number: int
    kind: str
    who: int | None
    when: str
    gone: tuple[int, ...]
    commitment: str
    before: str

    @property
    def hash(self) -> str:
        return digest_of(vars(self))

    @classmethod
    def of_plain(cls, value: Any) -> ChainLink:
        """Make the link from plain values of JSON."""
        check_types(value, _TYPES)
        if not all(type(number) is int for number in value["gone"]):
            raise TypeError("gone: it is no list of whole numbers")
        if value["kind"] not in KINDS:
            raise ValueError(f"unknown kind of change: {value['kind']!r:.80}")
        return cls(**{**value, "gone": tuple(value["gone"])})


def check_types(value: Any, types: Mapping[str, tuple[type, ...]]) -> None:
    """Raise `TypeError` unless `value` is a dict with just these names and types.

    True and False are no numbers here.
    """
    if not isinstance(value, dict):
        raise TypeError("it is no object of JSON")
    if wrong := sorted(map(repr, value.keys() ^ types.keys())):
        raise TypeError(f"{wrong[0]:.80}: it is missing or unknown")
    for name, allowed in types.items():
        if type(value[name]) not in allowed:
            raise TypeError(f"{name}: it has the wrong type")


def check_chain(values: Sequence[Any], start: str) -> list[ChainLink]:
    """Make links from plain values; the first must follow the hash `start`.

    Raises
    ------
    DataError
        A link is missing or damaged, or does not follow the link before it.
    """
    links: list[ChainLink] = []
    for number, value in enumerate(values):
        try:
            link = ChainLink.of_plain(value)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"the chain: link {number} is damaged: {error}") from None
        if link.number != number or link.before != start:
            raise DataError(
                f"the chain was rewritten: link {number} does not follow link "
                f"{number - 1}"
            )
        links.append(link)
        start = link.hash
    return links


def present(links: Sequence[ChainLink]) -> dict[int, ChainLink]:
    """The links whose entries are still in the book, by link number."""
    gone = {number for link in links for number in link.gone}
    return {n.number: n for n in links if n.commitment and n.number not in gone}


def canonical(value: Any) -> bytes:
    """Encode plain values; equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def digest_of(value: Any) -> str:
    """The SHA-256 of plain values, in hex."""
    return hashlib.sha256(canonical(value)).hexdigest()


def new_key() -> bytes:
    """A new Ed25519 key: 32 bytes."""
    _primitives()  # says what to install
    return secrets.token_bytes(32)


def public_of(key: bytes) -> str:
    """The public key of an Ed25519 key, in hex."""
    return _primitives().from_private_bytes(key).public_key().public_bytes_raw().hex()


def signed(value: Mapping[str, Any], key: bytes) -> dict[str, Any]:
    """A dict with `value`, the public key, and a signature of both."""
    whole = {**value, "public_key": public_of(key)}
    signature = _primitives().from_private_bytes(key).sign(canonical(whole))
    return {**whole, "signature": signature.hex()}


def check_signed(value: Any, what: str) -> dict[str, Any]:
    """Check the signature; returns `value` without it.

    Raises
    ------
    DataError
        `value` differs from what `signed` returned.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        rest = {name: v for name, v in value.items() if name != "signature"}
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(value["public_key"]))
        key.verify(bytes.fromhex(value["signature"]), canonical(rest))
    except (InvalidSignature, AttributeError, KeyError, TypeError, ValueError):
        raise DataError(f"{what}: the signature is wrong") from None
    return rest


def _primitives():
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise ConfigError(
            "a book needs the package cryptography: pip install "
            "'federatedscope-ggeur[privacy]'"
        ) from None
    return Ed25519PrivateKey


_SALT = 32
_FIELD_TYPES = {
    "number": (int,),
    "client": (int,),
    "domain": (str,),
    "since": (str,),
    "salt": (str,),
}


@dataclass(frozen=True, eq=False)
class BookEntry:
    """Statistics that one change of the book added for a client.

    Attributes
    ----------
    number : int
        The number of the link that added the entry.
    client : int
    domain : str
    since : str
        When the rows were added, UTC.
    statistics : GridStatistics
    salt : bytes
        The salt of the entry's commitment; by default a new one.
    """

    number: int
    client: int
    domain: str
    since: str
    statistics: GridStatistics
    salt: bytes = field(default_factory=partial(secrets.token_bytes, _SALT))

    @property
    def name(self) -> str:
        """The entry's file within the book."""
        return entry_name(self.number)

    @property
    def commitment(self) -> str:
        return self.statistics.digest(self.salt)

    def padded(self, num_classes: int) -> BookEntry:
        """The entry for `num_classes` classes; the added classes have no rows."""
        return replace(self, statistics=self.statistics.padded(num_classes))

    def to_bytes(self) -> bytes:
        arrays = self.statistics.arrays()
        about = {
            "number": self.number,
            "client": self.client,
            "domain": self.domain,
            "since": self.since,
            "salt": self.salt.hex(),
        }
        tensors = {n: torch.from_numpy(array.copy()) for n, array in arrays.items()}
        return save(tensors, {"entry": json.dumps(about)})

    @classmethod
    def of_bytes(
        cls, data: bytes, num_classes: int, grid: Grid, where: str
    ) -> BookEntry:
        """Read an entry from the bytes of a file; `where` names it in errors.

        Raises
        ------
        DataError
            The file is damaged.
        """
        try:
            about = json.loads(safetensors_header(data)["__metadata__"]["entry"])
            held = {name: tensor.numpy() for name, tensor in load(data).items()}
            statistics = GridStatistics.of_arrays(num_classes, grid, held)
            check_types(about, _FIELD_TYPES)
            salt = bytes.fromhex(about.pop("salt"))
            return cls(statistics=statistics, salt=salt, **about)
        except (
            SafetensorError,
            StatisticsError,
            ValueError,
            KeyError,
            IndexError,
            TypeError,
        ) as error:
            raise DataError(f"'{where}' is damaged: {error}") from error


def entry_name(number: int) -> str:
    """The path within the book of the entry that link `number` added."""
    return f"entries/{number:06d}.safetensors"


I64 = torch.int64


class BookUpload(wire.Payload, kind="book_statistics"):
    """Round 0, client to server: whole-number statistics above the min-count threshold.

    Attributes
    ----------
    client : int
    domain : str
    statistics : GridStatistics
    """

    client: int
    domain: str
    statistics: GridStatistics

    def write(self) -> wire.Content:
        exponents = np.array(self.statistics.grid.exponents, dtype=np.int64)
        arrays = {"exponents": exponents, **self.statistics.arrays()}
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return {"client": self.client, "domain": self.domain}, tensors

    @classmethod
    def read(cls, message: wire.Message, schema: MessageSchema) -> BookUpload:
        size, dim = schema.num_classes, schema.dim
        labels = message.labels("classes", size, distinct=True)
        counts = message.tensor("counts", I64, (len(labels),))
        if ((counts <= 0) | (counts > wire.LARGEST)).any():
            raise message.refuse("counts", f"counts must lie in 1..{wire.LARGEST}")
        grid = Grid(tuple(message.tensor("exponents", I64, (dim,)).tolist()))
        triangle = (dim * (dim + 1) // 2,)
        tensors = {
            "classes": labels,
            "counts": counts,
            "sums": message.tensor("sums", I64, (len(labels), dim)),
            "high": message.tensor("high", I64, triangle),
            "low": message.tensor("low", I64, triangle),
        }
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        try:
            whole = GridStatistics.of_arrays(size, grid, arrays)
        except StatisticsError as error:
            raise message.refuse("sums", str(error)) from error
        return cls(message.client(), message.text("domain"), whole)


class BookReceipt(wire.Payload, kind="book_receipt"):
    """Round 0, server to client: a receipt with the signed end of the book's chain.

    Attributes
    ----------
    text : str
        The receipt, as JSON.
    """

    text: str = wire.text()
