"""What is refused of messages of secure sums, beside what is refused of all."""

import pytest
import torch
from messages_of_sums import KEYS, ROSTER, SESSION
from spoilt_messages import DIM, SCHEMA, opened, pack, refusal

from federatedscope_ggeur.extras.secure_sums.messages import (
    MaskedRequest,
    MaskedVector,
    SumKey,
    SumKeysRequest,
)
from federatedscope_ggeur.federation import wire

PEERS = (ROSTER, KEYS, KEYS[::-1], (b"", b"3" * 64, b""))
#: Stages in which a request has no classes; the last one has an origin.
REQUESTS = {
    "counts": MaskedRequest(SESSION, "counts", *PEERS),
    "pooled": MaskedRequest(SESSION, "pooled", *PEERS, origin=torch.arange(DIM) / 2),
}


def texts(*shape):
    return torch.zeros(shape, dtype=torch.uint8)


@pytest.mark.parametrize(
    "sent", [*REQUESTS.values(), SumKey(3, SESSION, KEYS[0], KEYS[1])]
)
def test_stages_and_keys_without_a_signature_come_back(sent):
    data = sent.to_bytes()
    back = type(sent).from_bytes(data, SCHEMA, "client 3")
    assert back.to_bytes() == data
    if isinstance(sent, SumKey):
        assert back == sent
    else:
        assert (back.stage, back.signatures) == (sent.stage, sent.signatures)
        assert torch.equal(back.origin, sent.origin)


@pytest.mark.parametrize(
    ("payload", "name", "wrong"),
    [
        *(
            (SumKeysRequest, "roster", torch.tensor(roster))
            for roster in ([3, 1, 7], [1, 1, 7], [0, 1, 7], [*range(1, 10002)])
        ),
        *((p, "session", texts(15)) for p in (SumKeysRequest, MaskedRequest)),
        *((MaskedRequest, name, texts(2, 32)) for name in ("keys", "commitments")),
        (MaskedRequest, "signatures", texts(3, 63)),
        *((MaskedRequest, "classes", torch.tensor(c)) for c in ([2, 0], [0, 3])),
        *((MaskedRequest, "counts", torch.tensor(n)) for n in ([5], [5, 0])),
        (MaskedRequest, "vectors", torch.zeros(3, 2, dtype=torch.int64)),
        (MaskedRequest, "origin", torch.zeros(DIM)),
        (SumKey, "mask_key", texts(31)),
        (SumKey, "commitment", texts(31)),
        (SumKey, "signature", texts(63)),
        (MaskedVector, "masked", torch.zeros(3, 1, dtype=torch.int64)),
    ],
)
def test_a_tensor_that_cannot_be_is_refused_by_name(payload, name, wrong):
    assert refusal(payload, pack(payload, None, {name: wrong})).field == name


@pytest.mark.parametrize(
    ("payload", "name", "wrong"),
    [(SumKeysRequest, "min_clients", 0), (MaskedRequest, "stage", "other")],
)
def test_a_number_that_cannot_be_is_refused_by_name(payload, name, wrong):
    assert refusal(payload, pack(payload, {name: wrong})).field == name


@pytest.mark.parametrize(
    ("stage", "name", "wrong"),
    [
        ("counts", "classes", torch.tensor([0])),
        ("pooled", "origin", torch.full((DIM,), torch.nan)),
        ("pooled", "origin", torch.zeros(DIM + 1)),
    ],
)
def test_what_does_not_belong_to_a_stage_is_refused_by_name(stage, name, wrong):
    kind, numbers, tensors = opened(REQUESTS[stage])
    data = wire.pack(kind, numbers, {**tensors, name: wrong})
    assert refusal(MaskedRequest, data).field == name
