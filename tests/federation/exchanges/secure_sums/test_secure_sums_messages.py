"""Messages of secure sums: what comes back of them, and what is refused of them."""

from dataclasses import fields, replace

import pytest
import torch

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.exchanges.secure_sums.messages import (
    MaskedRequest,
    MaskedVector,
    SumKey,
    SumKeysRequest,
)
from federatedscope_ggeur.federation.wire.schema import MessageSchema

SCHEMA = MessageSchema(4, 3, 1)
SESSION, ROSTER = bytes(range(16)), (1, 2, 7)
KEYS = tuple(bytes([k]) * 32 for k in ROSTER)
SIGNATURES = (b"", bytes([3]) * 64, b"")
COMMITMENTS = tuple(bytes([k]) * 32 for k in (9, 8, 7))
PEERS = (ROSTER, KEYS, COMMITMENTS, SIGNATURES)
MEANS = MaskedRequest(
    *(SESSION, "means", *PEERS),
    classes=torch.tensor([0, 3]),
    counts=torch.tensor([5, 9]),
    vectors=torch.arange(12).reshape(3, 4) - 2**62,
)
PAYLOADS = [
    SumKeysRequest(SESSION, ROSTER, 3, 5, 1.01, 2**20, 40),
    MEANS,
    MaskedRequest(SESSION, "counts", *PEERS),
    MaskedRequest(SESSION, "pooled", *PEERS, origin=torch.tensor([1.0, 2, 3])),
    SumKey(7, SESSION, KEYS[0], COMMITMENTS[0]),
    SumKey(7, SESSION, KEYS[0], COMMITMENTS[0], SIGNATURES[1]),
    MaskedVector(7, SESSION, "means", torch.tensor([-1, 2**63 - 1, -(2**63)])),
]


def decoded(payload, data=None):
    data = payload.to_bytes() if data is None else data
    return type(payload).from_bytes(data, SCHEMA, "client 7")


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda p: type(p).__name__)
def test_what_is_sent_comes_back(payload):
    back = decoded(payload)
    for one in fields(payload):
        here, there = getattr(payload, one.name), getattr(back, one.name)
        if isinstance(here, torch.Tensor):
            assert torch.equal(here, there)
        else:
            assert here == there


def spoilt(payload, numbers=(), **tensors):
    """Bytes of a payload with other numbers and tensors."""
    kind = {
        SumKeysRequest: "sum_keys_request",
        MaskedRequest: "masked_request",
        SumKey: "sum_key",
        MaskedVector: "masked_vector",
    }[type(payload)]
    message = wire.unpack(payload.to_bytes(), kind, "test")
    changed = {**message._tensors, **tensors}
    kept = {name: t for name, t in changed.items() if t is not None}
    return wire.pack(kind, {**message._numbers, **dict(numbers)}, kept)


U8, I64 = torch.uint8, torch.int64


@pytest.mark.parametrize(
    ("payload", "numbers", "tensors", "field"),
    [
        (PAYLOADS[0], {}, {"session": torch.zeros(15, dtype=U8)}, "session"),
        (PAYLOADS[0], {}, {"roster": torch.tensor([2, 1, 3])}, "roster"),
        (PAYLOADS[0], {}, {"roster": torch.tensor([1, 1, 3])}, "roster"),
        (PAYLOADS[0], {}, {"roster": torch.tensor([0, 1, 3])}, "roster"),
        (PAYLOADS[0], {}, {"roster": torch.arange(1, 10002)}, "roster"),
        (PAYLOADS[0], {"radius": -1.0}, {}, "radius"),
        (PAYLOADS[0], {"min_clients": 0}, {}, "min_clients"),
        (PAYLOADS[0], {}, {"extra": torch.zeros(1)}, "extra"),
        (MEANS, {"stage": "other"}, {}, "stage"),
        (MEANS, {}, {"keys": torch.zeros(2, 32, dtype=U8)}, "keys"),
        (MEANS, {}, {"commitments": torch.zeros(2, 32, dtype=U8)}, "commitments"),
        (MEANS, {}, {"signatures": torch.zeros(3, 63, dtype=U8)}, "signatures"),
        (MEANS, {}, {"classes": torch.tensor([3, 0])}, "classes"),
        (MEANS, {}, {"classes": torch.tensor([0, 4])}, "classes"),
        (MEANS, {}, {"counts": torch.tensor([5])}, "counts"),
        (MEANS, {}, {"counts": torch.tensor([5, 0])}, "counts"),
        (MEANS, {}, {"vectors": torch.zeros(3, 3, dtype=I64)}, "vectors"),
        (MEANS, {}, {"vectors": torch.zeros(3, 4)}, "vectors"),
        (MEANS, {}, {"vectors": None}, "vectors"),
        (MEANS, {}, {"origin": torch.zeros(3)}, "origin"),
        (PAYLOADS[2], {}, {"classes": torch.tensor([0])}, "classes"),
        (PAYLOADS[3], {}, {"origin": torch.tensor([1.0, torch.nan, 0])}, "origin"),
        (PAYLOADS[3], {}, {"origin": torch.zeros(4)}, "origin"),
        (PAYLOADS[4], {"client": 6}, {}, "client"),
        (PAYLOADS[4], {}, {"mask_key": torch.zeros(31, dtype=U8)}, "mask_key"),
        (PAYLOADS[4], {}, {"commitment": torch.zeros(31, dtype=U8)}, "commitment"),
        (PAYLOADS[4], {}, {"commitment": None}, "commitment"),
        (PAYLOADS[4], {}, {"signature": torch.zeros(63, dtype=U8)}, "signature"),
        (PAYLOADS[6], {}, {"masked": torch.zeros(3)}, "masked"),
        (PAYLOADS[6], {}, {"masked": torch.zeros(3, 1, dtype=I64)}, "masked"),
        (PAYLOADS[6], {"client": 1}, {}, "client"),
    ],
)
def test_a_field_that_cannot_be_is_refused_by_name(payload, numbers, tensors, field):
    with pytest.raises(MessageError) as error:
        decoded(payload, spoilt(payload, numbers, **tensors))
    assert error.value.field == field


def test_garbage_is_refused():
    for payload in PAYLOADS:
        for data in (b"", b"garbage", replace(PAYLOADS[4], client=7).to_bytes()[:-3]):
            with pytest.raises(MessageError):
                decoded(payload, data)
