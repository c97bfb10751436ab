"""Valid messages of each kind, and means to spoil them."""

import json
import struct

import pytest
import torch
from safetensors.torch import save

from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.exchanges.augmentation.messages import (
    Geometry,
    InitBroadcast,
    PrepareReply,
    Prototypes,
)
from federatedscope_ggeur.federation.exchanges.closed_form.leave_one_out import (
    ConfidenceQuery,
    Confidences,
    HitCounts,
    LeaveOneOut,
    LogLosses,
    LossQuery,
)
from federatedscope_ggeur.federation.exchanges.evaluation.messages import ScoreReport
from federatedscope_ggeur.federation.exchanges.noisy_release.messages import (
    ReleaseRequest,
    ReleaseVector,
)
from federatedscope_ggeur.federation.exchanges.personal.messages import (
    PersonalLosses,
    PersonalQuery,
    PersonalScore,
)
from federatedscope_ggeur.federation.exchanges.space.messages import (
    SpaceBroadcast,
    TotalsUpload,
)
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.exchanges.training.messages import (
    Broadcast,
    ClientUpdate,
)
from federatedscope_ggeur.federation.wire.schema import MessageSchema

CLASSES, DIM, PARAMS = 3, 4, 10
SCHEMA = MessageSchema(CLASSES, DIM, PARAMS)
PAYLOADS = (
    StatisticsUpload,
    TotalsUpload,
    SpaceBroadcast,
    Geometry,
    Prototypes,
    PrepareReply,
    InitBroadcast,
    Broadcast,
    ClientUpdate,
    ScoreReport,
    LeaveOneOut,
    HitCounts,
    LossQuery,
    LogLosses,
    ConfidenceQuery,
    Confidences,
    PersonalQuery,
    PersonalLosses,
    PersonalScore,
    ReleaseRequest,
    ReleaseVector,
)

# One valid message of each kind: its numbers and its tensors.
VALID = {
    StatisticsUpload: (
        "statistics",
        {"client": 3, "domain": "art"},
        {
            "classes": torch.tensor([0, 2]),
            "counts": torch.tensor([2, 9]),
            "means": torch.ones(2, DIM, dtype=torch.float64),
            "ranks": torch.tensor([1, -1]),
            "factors": torch.ones(1, DIM),
            # The identity, as its upper triangle.
            "triangles": torch.tensor([[1.0, 0, 0, 0, 1, 0, 0, 1, 0, 1]]),
        },
    ),
    TotalsUpload: (
        "totals",
        {"client": 3, "count": 7, "spread": 2.5, "within": 0.0},
        {
            "mean": torch.ones(DIM, dtype=torch.float64),
            "squares": torch.tensor([1.0, 0.5, 1.0, 0.0], dtype=torch.float64),
        },
    ),
    SpaceBroadcast: (
        "space",
        {"kind": "whitened", "scale": 1.0},
        {
            "centre": torch.ones(DIM, dtype=torch.float64),
            # The identity, as its upper triangle.
            "triangle": torch.tensor([1.0, 0, 0, 0, 1, 0, 0, 1, 0, 1]),
        },
    ),
    Geometry: (
        "geometry",
        {},
        {
            "classes": torch.tensor([0, 2]),
            "ranks": torch.tensor([1, 2]),
            "eigenvalues": torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64),
            "eigenvectors": torch.eye(DIM)[:3],
        },
    ),
    Prototypes: (
        "prototypes",
        {},
        {"labels": torch.tensor([2, 0]), "prototypes": torch.ones(2, DIM)},
    ),
    PrepareReply: (
        "prepare_reply",
        {"client": 3, "aggregation_weight": 5.0},
        {"init_upload.a": torch.ones(2)},
    ),
    LeaveOneOut: (
        "leave_one_out",
        {"domains": ["art"]},
        {
            "labels": torch.tensor([0, 2]),
            "counts": torch.tensor([2, 9]),
            "means": torch.ones(2, DIM, dtype=torch.float64),
            "clients": torch.tensor([1, -1]),
            "domains": torch.tensor([0, -1]),
            # The identity, as its upper triangle.
            "scatter": torch.tensor([1.0, 0, 0, 0, 1, 0, 0, 1, 0, 1]).double(),
        },
    ),
    HitCounts: (
        "hit_counts",
        {"client": 3, "rows": 6, "validation": 2, "scored": 5},
        {"hits": torch.tensor([5, 0])},
    ),
    LossQuery: (
        "loss_query",
        {"candidate": 1},
        {"by": torch.arange(1, 26, dtype=torch.float64)},
    ),
    ConfidenceQuery: (
        "confidence_query",
        {"candidate": 1, "temperature": 2.0},
        {},
    ),
    Confidences: (
        "confidences",
        {"client": 3},
        {"counts": torch.arange(64)},
    ),
    PersonalQuery: (
        "personal_query",
        {"shrinkage": 0.3, "standardize": 0, "temperature": 2.0, "kappa": 3},
        {},
    ),
    PersonalLosses: (
        "personal_losses",
        {"client": 3, "rows": 5},
        {"losses": torch.arange(36).view(9, 4)},
    ),
    PersonalScore: (
        "personal_score",
        {"client": 3, "correct": 4, "total": 5, "recall": 0.5},
        {},
    ),
    ReleaseRequest: (
        "release_request",
        {"stage": "spread"},
        {
            "session": torch.arange(16, dtype=torch.uint8),
            "centre": torch.full((DIM,), 0.5, dtype=torch.float64),
        },
    ),
    ReleaseVector: (
        "release_vector",
        {"client": 3, "stage": "moments"},
        {
            "session": torch.arange(16, dtype=torch.uint8),
            "values": torch.arange(CLASSES + DIM) - 2**40,
        },
    ),
    LogLosses: (
        "log_losses",
        {"client": 3, "rows": 5},
        {"losses": torch.arange(25)},
    ),
    InitBroadcast: ("init_broadcast", {}, {"init_broadcast.a": torch.ones(2)}),
    Broadcast: (
        "broadcast",
        {"round": 1},
        {"params": torch.ones(PARAMS), "download.c": torch.ones(2)},
    ),
    ClientUpdate: (
        "update",
        {"client": 3, "round": 1, "steps": 4},
        {"params": torch.ones(PARAMS), "upload.c": torch.ones(2)},
    ),
    ScoreReport: (
        "score",
        {
            "client": 3,
            "round_number": 1,
            "splits": ["val"],
            "val_correct": 2,
            "val_total": 5,
            "val_loss_sum": 0.5,
        },
        {},
    ),
}


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
