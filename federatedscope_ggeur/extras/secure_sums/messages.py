"""The messages of secure sums: keys, then masked vectors in stages."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.schema import MessageSchema

from .limits import MOST_CLIENTS
from .settings import ALL_STAGES

U8, I64, F32 = torch.uint8, torch.int64, torch.float32
_SESSION, _KEY, _SIGNATURE, _COMMITMENT = 16, 32, 64, 32
_NO_CLASSES = torch.zeros(0, dtype=I64)


#: The settings in a session's request.
ASKED_SETTINGS = ("min_clients", "min_samples", "radius", "max_rows", "fraction_bits")


@dataclass(frozen=True)
class SumKeysRequest:
    """Round 0, server to all clients: begins a session of secure sums.

    Attributes
    ----------
    session : bytes
    roster : tuple of int
        The clients whose statistics are summed, ascending.
    min_clients, min_samples, max_rows, fraction_bits : int
    radius : float
        These five values must equal those in the clients' own settings.
    """

    session: bytes
    roster: tuple[int, ...]
    min_clients: int
    min_samples: int
    radius: float
    max_rows: int
    fraction_bits: int

    def to_bytes(self) -> bytes:
        numbers = {name: getattr(self, name) for name in ASKED_SETTINGS}
        tensors = {"session": as_bytes(self.session), "roster": _roster(self.roster)}
        return wire.pack("sum_keys_request", numbers, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str = "the server"
    ) -> SumKeysRequest:
        message = wire.unpack(data, "sum_keys_request", sender)
        message.only(("session", "roster"))
        return cls(
            _session_of(message),
            _roster_of(message),
            message.integer("min_clients", 1),
            message.integer("min_samples", 1),
            message.number("radius"),
            message.integer("max_rows", 1),
            message.integer("fraction_bits", 0),
        )


@dataclass(frozen=True)
class SumKey:
    """Round 0, client to server: the client's key, signed if it has a signing key.

    Attributes
    ----------
    client, session, key
    commitment : bytes
        A salted digest of the client's rows and classes. The same rows give the same
        digest in every session. Without the client's salt the digest reveals nothing
        about the rows.
    signature : bytes
    """

    client: int
    session: bytes
    key: bytes
    commitment: bytes
    signature: bytes = b""

    def to_bytes(self) -> bytes:
        tensors = {
            "session": as_bytes(self.session),
            "mask_key": as_bytes(self.key),
            "commitment": as_bytes(self.commitment),
            "signature": as_bytes(self.signature),
        }
        return wire.pack("sum_key", {"client": self.client}, tensors)

    @classmethod
    def from_bytes(cls, data: bytes, schema: MessageSchema, sender: str) -> SumKey:
        message = wire.unpack(data, "sum_key", sender)
        message.only(("session", "mask_key", "commitment", "signature"))
        key = message.tensor("mask_key", U8, (_KEY,))
        commitment = message.tensor("commitment", U8, (_COMMITMENT,))
        signature = message.tensor("signature", U8, (None,))
        if len(signature) not in (0, _SIGNATURE):
            raise message.refuse("signature", f"must have 0 or {_SIGNATURE} bytes")
        return cls(
            message.client(),
            _session_of(message),
            of_bytes(key),
            of_bytes(commitment),
            of_bytes(signature),
        )


@dataclass(frozen=True)
class MaskedRequest:
    """Round 0, server to all clients: asks for the vectors of one stage.

    Attributes
    ----------
    session, stage : bytes, str
    roster : tuple of int
    keys, commitments, signatures : tuple of bytes
        One for each client, in the order of `roster`; a signature may be empty.
    classes, counts : Tensor of shape (m,), int64
        In stage "means": the classes to sum, and their numbers of rows over all
        clients.
    vectors : Tensor of shape (K, C), int64
        In stage "means": the vectors that clients have sent in stage "counts".
    origin : Tensor of shape (D,), float32
        In stages "pooled" and "spread": the point that is subtracted from rows.
    """

    session: bytes
    stage: str
    roster: tuple[int, ...]
    keys: tuple[bytes, ...]
    commitments: tuple[bytes, ...]
    signatures: tuple[bytes, ...]
    classes: Tensor = field(default_factory=lambda: _NO_CLASSES)
    counts: Tensor = field(default_factory=lambda: _NO_CLASSES)
    vectors: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=I64))
    origin: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=F32))

    def to_bytes(self) -> bytes:
        none = bytes(_SIGNATURE)
        tensors = {
            "session": as_bytes(self.session),
            "roster": _roster(self.roster),
            "keys": as_bytes(b"".join(self.keys)).reshape(-1, _KEY),
            "commitments": as_bytes(b"".join(self.commitments)).reshape(
                -1, _COMMITMENT
            ),
            "signatures": as_bytes(
                b"".join(s or none for s in self.signatures)
            ).reshape(-1, _SIGNATURE),
            "classes": self.classes,
            "counts": self.counts,
            "vectors": self.vectors,
            "origin": self.origin,
        }
        return wire.pack("masked_request", {"stage": self.stage}, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str = "the server"
    ) -> MaskedRequest:
        message = wire.unpack(data, "masked_request", sender)
        message.only([one.name for one in fields(cls) if one.name != "stage"])
        stage, roster = message.text("stage"), _roster_of(message)
        if stage not in ALL_STAGES:
            raise message.refuse("stage", f"unknown stage {stage!r:.80}")
        keys = message.tensor("keys", U8, (len(roster), _KEY))
        commitments = message.tensor("commitments", U8, (len(roster), _COMMITMENT))
        signatures = message.tensor("signatures", U8, (len(roster), _SIGNATURE))
        names = stage == "means"
        classes = message.labels("classes", schema.num_classes, distinct=True)
        if len(classes) and not names:
            raise message.refuse(
                "classes", f"only stage 'means' has classes, not stage '{stage}'"
            )
        counts = message.tensor("counts", I64, (len(classes),))
        if ((counts < 1) | (counts > wire.LARGEST)).any():
            raise message.refuse("counts", f"must lie in 1..{wire.LARGEST}")
        shape = (len(roster), schema.num_classes) if names else (0, 0)
        dim = schema.dim if stage in ("pooled", "spread") else 0
        return cls(
            _session_of(message),
            stage,
            roster,
            tuple(of_bytes(key) for key in keys),
            tuple(of_bytes(one) for one in commitments),
            tuple(of_bytes(s) if s.any() else b"" for s in signatures),
            classes,
            counts,
            message.tensor("vectors", I64, shape),
            message.tensor("origin", F32, (dim,)),
        )


@dataclass(frozen=True)
class MaskedVector:
    """Round 0, client to server: the client's masked vector of one stage.

    Attributes
    ----------
    client : int
    session, stage : bytes, str
    masked : Tensor of shape (P,), int64
        Elements of the ring of integers modulo 2^64.
    """

    client: int
    session: bytes
    stage: str
    masked: Tensor

    def to_bytes(self) -> bytes:
        numbers = {"client": self.client, "stage": self.stage}
        tensors = {"session": as_bytes(self.session), "masked": self.masked}
        return wire.pack("masked_vector", numbers, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str
    ) -> MaskedVector:
        message = wire.unpack(data, "masked_vector", sender)
        message.only(("session", "masked"))
        return cls(
            message.client(),
            _session_of(message),
            message.text("stage"),
            message.tensor("masked", I64, (None,)),
        )


def as_bytes(data: bytes) -> Tensor:
    """Convert bytes to a tensor of type uint8."""
    return torch.from_numpy(np.array(bytearray(data), dtype=np.uint8))


def of_bytes(tensor: Tensor) -> bytes:
    """Convert a tensor made by `as_bytes` back to bytes."""
    return tensor.contiguous().numpy().tobytes()


def _roster(numbers: tuple[int, ...]) -> Tensor:
    return torch.tensor(numbers, dtype=I64)


def _session_of(message: wire.Message) -> bytes:
    return of_bytes(message.tensor("session", U8, (_SESSION,)))


def _roster_of(message: wire.Message) -> tuple[int, ...]:
    roster = message.tensor("roster", I64, (None,))
    if len(roster) > MOST_CLIENTS:
        raise message.refuse(
            "roster",
            f"at most {MOST_CLIENTS} clients can be in a roster, got {len(roster)}",
        )
    if (roster < 1).any() or (roster.diff() <= 0).any():
        raise message.refuse(
            "roster", "client numbers must be ascending and distinct, from 1 on"
        )
    return tuple(roster.tolist())
