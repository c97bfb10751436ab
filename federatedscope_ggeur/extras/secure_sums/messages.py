"""The messages of secure sums: keys, then masked vectors in stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def _roster_problem(roster: Tensor) -> str:
    if len(roster) > MOST_CLIENTS:
        return f"at most {MOST_CLIENTS} clients can be in a roster, got {len(roster)}"
    if (roster < 1).any() or (roster.diff() <= 0).any():
        return "client numbers must be ascending and distinct, from 1 on"
    return ""


def _signature_problem(signature: Tensor) -> str:
    if len(signature) in (0, _SIGNATURE):
        return ""
    return f"must have 0 or {_SIGNATURE} bytes"


def _counts_problem(counts: Tensor) -> str:
    if ((counts < 1) | (counts > wire.LARGEST)).any():
        return f"must lie in 1..{wire.LARGEST}"
    return ""


def _stage_problem(stage: str) -> str:
    return "" if stage in ALL_STAGES else f"unknown stage {stage!r:.80}"


def _stacked(held: tuple[bytes, ...]) -> Tensor:
    """Bytes of each client as rows; no signature becomes zeros."""
    return torch.stack([wire.as_bytes(one or bytes(_SIGNATURE)) for one in held])


def _keys(rows: Tensor) -> tuple[bytes, ...]:
    return tuple(map(wire.of_bytes, rows))


def _signatures(rows: Tensor) -> tuple[bytes, ...]:
    return tuple(wire.of_bytes(one) if one.any() else b"" for one in rows)


def _take_classes(
    message: wire.Message, name: str, schema: MessageSchema, earlier: Mapping[str, Any]
) -> Tensor:
    stage, labels = earlier["stage"], message.labels(name, schema.num_classes, True)
    if len(labels) and stage != "means":
        raise message.refuse(
            name, f"only stage 'means' has classes, not stage '{stage}'"
        )
    return labels


def _shape_of_vectors(
    schema: MessageSchema, earlier: Mapping[str, Any]
) -> tuple[int, int]:
    if earlier["stage"] == "means":
        return len(earlier["roster"]), schema.num_classes
    return 0, 0


def _shape_of_origin(schema: MessageSchema, earlier: Mapping[str, Any]) -> tuple[int]:
    return (schema.dim if earlier["stage"] in ("pooled", "spread") else 0,)


class SumKeysRequest(wire.Payload, kind="sum_keys_request"):
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

    session: bytes = wire.octets(_SESSION)
    roster: tuple[int, ...] = wire.integers(problem=_roster_problem)
    min_clients: int = wire.integer(least=1)
    min_samples: int = wire.integer(least=1)
    radius: float = wire.number()
    max_rows: int = wire.integer(least=1)
    fraction_bits: int = wire.integer()


class SumKey(wire.Payload, kind="sum_key"):
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

    client: int = wire.client()
    session: bytes = wire.octets(_SESSION)
    key: bytes = wire.octets(_KEY, name="mask_key")
    commitment: bytes = wire.octets(_COMMITMENT)
    signature: bytes = wire.octets(problem=_signature_problem, default=b"")


class MaskedRequest(wire.Payload, kind="masked_request"):
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

    session: bytes = wire.octets(_SESSION)
    stage: str = wire.text(problem=_stage_problem)
    roster: tuple[int, ...] = wire.integers(problem=_roster_problem)
    keys: tuple[bytes, ...] = wire.tensor(
        U8, ("roster", _KEY), converts=(_stacked, _keys)
    )
    commitments: tuple[bytes, ...] = wire.tensor(
        U8, ("roster", _COMMITMENT), converts=(_stacked, _keys)
    )
    signatures: tuple[bytes, ...] = wire.tensor(
        U8, ("roster", _SIGNATURE), converts=(_stacked, _signatures)
    )
    classes: Tensor = wire.own(_take_classes, default=_NO_CLASSES)
    counts: Tensor = wire.tensor(
        I64, ("classes",), problem=_counts_problem, default=_NO_CLASSES
    )
    vectors: Tensor = wire.tensor(
        I64, _shape_of_vectors, default=torch.zeros(0, 0, dtype=I64)
    )
    origin: Tensor = wire.tensor(F32, _shape_of_origin, default=torch.zeros(0))


class MaskedVector(wire.Payload, kind="masked_vector"):
    """Round 0, client to server: the client's masked vector of one stage.

    Attributes
    ----------
    client : int
    session, stage : bytes, str
    masked : Tensor of shape (P,), int64
        Elements of the ring; see the module `vectors`.
    """

    client: int = wire.client()
    session: bytes = wire.octets(_SESSION)
    stage: str = wire.text()
    masked: Tensor = wire.tensor(I64, (None,))
