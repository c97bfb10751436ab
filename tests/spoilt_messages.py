"""Valid messages of each kind, and means to spoil them."""

import json
import runpy
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save

from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.federation import Score, wire
from federatedscope_ggeur.federation.course.coordinator import Ending
from federatedscope_ggeur.federation.exchanges import personal
from federatedscope_ggeur.federation.exchanges.augmentation.messages import (
    Geometry,
    HeldOut,
    InitBroadcast,
    PrepareReply,
    Prototypes,
)
from federatedscope_ggeur.federation.exchanges.closed_form import messages
from federatedscope_ggeur.federation.exchanges.evaluation.scores import ScoreReport
from federatedscope_ggeur.federation.exchanges.space import SpaceBroadcast, TotalsUpload
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.exchanges.training.messages import (
    Broadcast,
    ClientUpdate,
)
from federatedscope_ggeur.federation.wire.handshake import Handshake, Join
from federatedscope_ggeur.federation.wire.schema import Declared, MessageSchema
from federatedscope_ggeur.geometry import GeometricShape, Space, Statistics, Totals
from federatedscope_ggeur.models.closed_forms import Components

CLASSES, DIM, PARAMS = 3, 4, 10
SCHEMA = MessageSchema(CLASSES, DIM, PARAMS)
ONES, EYE = torch.ones(2, DIM).double(), torch.eye(DIM).double()
STATISTICS = Statistics.from_moments(
    torch.tensor([2, 0, 9]),
    torch.ones(3, DIM).double(),
    {0: torch.ones(1, DIM)},
    {2: EYE},
)
SHAPES = (
    (0, ONES[0, :1], EYE[:, :1]),
    (2, torch.tensor([2.0, 1.0]).double(), EYE[:, 1:3]),
)
COMPONENTS = Components(
    *(torch.tensor([0, 2]), torch.tensor([2, 9]), ONES),
    *(torch.tensor([1, -1]), torch.tensor([0, -1])),
    *(CLASSES, ("art",), EYE),
)

HANDSHAKE = Handshake(("a",) * CLASSES, DIM, "none", {"seed": "0"})


def opened(payload):
    """The kind, numbers and tensors of a message."""
    data = payload.to_bytes()
    length = int.from_bytes(data[:8], "little")
    about = json.loads(data[8 : 8 + length])["__metadata__"]["ggeur"]
    header = json.loads(about)
    return header["kind"], header["numbers"], load(data)


# One valid message of each kind: its kind, its numbers and its tensors.
VALID = {
    type(payload): opened(payload)
    for payload in (
        StatisticsUpload(3, "art", STATISTICS),
        TotalsUpload(3, Totals(7, ONES[0], 2.5, torch.tensor([1, 0.5, 1, 0]).double())),
        SpaceBroadcast(Space("standard", ONES[0])),
        Geometry({c: GeometricShape(values, vectors) for c, values, vectors in SHAPES}),
        messages.LeaveOneOut(COMPONENTS),
        Prototypes(torch.tensor([2, 0]), torch.ones(2, DIM)),
        PrepareReply(3, 5.0, {"a": torch.ones(2)}),
        InitBroadcast({"a": torch.ones(2)}),
        HeldOut(0.1),
        Join(HANDSHAKE, Declared(5, 0, 2, 4.0), 3, "art"),
        Ending("trained", None),
        Broadcast(1, torch.ones(PARAMS), {"c": torch.ones(2)}),
        ClientUpdate(3, 1, torch.ones(PARAMS), 4, {"c": torch.ones(2)}),
        ScoreReport(3, 1, {"val": Score(2, 5, 0.5)}),
        messages.HitCounts(3, 6, torch.tensor([5, 0]), 2, 5),
        messages.LossQuery((1, 3), (tuple(map(float, range(1, 26))),) * 2),
        messages.LogLosses(3, 5, torch.arange(400).view(16, 25)),
        messages.OneCandidate(1, 2.0),
        messages.Confidences(3, torch.arange(65)),
        personal.PersonalQuery(0.3, False, 2.0, 2),
        personal.PersonalLosses(3, 5, torch.arange(36).view(9, 4)),
        personal.PersonalScore(3, 4, 5, 0.5),
    )
}
#: Those of extras, each in a file of its own.
for _file in sorted(Path(__file__).parent.glob("extras/*/messages_of_*.py")):
    for _payload in runpy.run_path(str(_file))["MESSAGES"]:
        VALID[type(_payload)] = opened(_payload)
PAYLOADS = tuple(VALID)


def pack(
    payload, numbers=None, tensors=None, version=wire.VERSION, kind=None, text=None
):
    """Bytes of a valid message of `payload` with some parts replaced; None removes."""
    own_kind, own_numbers, own_tensors = VALID[payload]
    own_numbers = {**own_numbers, **(numbers or {})}
    own_tensors = {**own_tensors, **(tensors or {})}
    header = {"version": version, "kind": kind or own_kind}
    header["numbers"] = {k: v for k, v in own_numbers.items() if v is not None}
    kept = {k: v for k, v in own_tensors.items() if v is not None}
    return save(kept, {"ggeur": text or json.dumps(header)})


def refusal(payload, data):
    """The error of a message from client 3, which must name its sender."""
    with pytest.raises(MessageError) as caught:
        payload.from_bytes(data, SCHEMA, "client 3")
    error = caught.value
    assert error.sender == "client 3"
    assert "client 3" in str(error)
    assert repr(error.field) in str(error)
    assert isinstance(error, GGEURError)
    return error


def raw(header, body=b""):
    """A safetensors file with any bytes for a header."""
    return struct.pack("<Q", len(header)) + header + body


def with_tensor(dtype, shape, size):
    """A reply message with a tensor that says it is of `dtype` and `shape`."""
    text = json.dumps(
        {
            "version": wire.VERSION,
            "kind": "prepare_reply",
            "numbers": VALID[PrepareReply][1],
        }
    )
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}
    header = {"__metadata__": {"ggeur": text}, "init_upload.a": entry}
    return raw(json.dumps(header).encode(), bytes(size))
