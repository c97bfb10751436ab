"""The messages at the end of round 0: geometry, prototypes, and replies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.geometry import GeometricShape

F32, I64 = torch.float32, torch.int64


@dataclass(frozen=True)
class Geometry:
    """Round 0, server to all clients: the global shape of each class.

    Attributes
    ----------
    shapes : mapping from class to GeometricShape
    pooled : bool
        Whether all classes share one shape, which travels once.
    """

    shapes: Mapping[int, GeometricShape]
    pooled: bool = False

    def to_bytes(self) -> bytes:
        classes = sorted(self.shapes)
        shapes = [self.shapes[c] for c in classes[: 1 if self.pooled else None]]
        dim = shapes[0].dim if shapes else 0
        empty = torch.zeros(0, dim)
        tensors = {
            "classes": torch.tensor(classes, dtype=I64),
            "ranks": torch.tensor([s.rank for s in shapes], dtype=I64),
            "eigenvalues": torch.cat(
                [torch.zeros(0).double(), *(s.eigenvalues.double() for s in shapes)]
            ),
            "eigenvectors": torch.cat(
                [empty, *(s.eigenvectors.T.to(F32) for s in shapes)]
            ),
        }
        return wire.pack("geometry", {}, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str = "the server"
    ) -> Geometry:
        message = wire.unpack(data, "geometry", sender)
        message.only(("classes", "ranks", "eigenvalues", "eigenvectors"))
        labels = message.labels("classes", schema.num_classes, distinct=True)
        dim = schema.dim if len(labels) else 0
        distinct = min(1, len(labels)) if schema.pooled_geometry else len(labels)
        ranks = message.tensor("ranks", I64, (distinct,))
        if ((ranks < 0) | (ranks > dim)).any():
            raise message.refuse("ranks", f"ranks must lie in 0..{dim}")
        total = int(ranks.sum())
        values = message.tensor("eigenvalues", torch.float64, (total,))
        if (values <= 0).any():
            raise message.refuse("eigenvalues", "eigenvalues must be positive")
        vectors = message.tensor("eigenvectors", F32, (total, dim))
        if ((vectors.norm(dim=1) - 1).abs() > 1e-3).any():
            raise message.refuse("eigenvectors", "each eigenvector must have length 1")
        parts = zip(values.split(ranks.tolist()), vectors.split(ranks.tolist()))
        shapes = [GeometricShape(v, e.T) for v, e in parts]
        if schema.pooled_geometry:
            shapes = shapes * len(labels)
        return cls(dict(zip(labels.tolist(), shapes)), schema.pooled_geometry)


@dataclass(frozen=True)
class Prototypes:
    """Round 0, server to one client: class means of other domains or clients.

    Attributes
    ----------
    labels : Tensor of shape (P,), int64
    prototypes : Tensor of shape (P, D), float32
    counts : Tensor of shape (P,), int64, or None
        With summed statistics, the prototypes are raw class means over all clients, and
        these are the numbers of rows behind them. Otherwise None.
    """

    labels: Tensor
    prototypes: Tensor
    counts: Tensor | None = None

    def to_bytes(self) -> bytes:
        tensors = {"labels": self.labels, "prototypes": self.prototypes}
        if self.counts is not None:
            tensors["counts"] = self.counts
        return wire.pack("prototypes", {}, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str = "the server"
    ) -> Prototypes:
        message = wire.unpack(data, "prototypes", sender)
        counted = schema.counted_prototypes
        message.only(("labels", "prototypes", *(["counts"] if counted else [])))
        labels = message.labels("labels", schema.num_classes, distinct=counted)
        means = message.tensor("prototypes", F32, (len(labels), schema.dim))
        if not counted:
            return cls(labels, means)
        counts = message.tensor("counts", I64, (len(labels),))
        if ((counts < 1) | (counts > wire.LARGEST)).any():
            raise message.refuse("counts", f"must lie in 1..{wire.LARGEST}")
        return cls(labels, means, counts)


@dataclass(frozen=True)
class PrepareReply:
    """Round 0, client to server: the aggregation weight, and the method's tensors."""

    client: int
    aggregation_weight: float
    init_upload: Mapping[str, Tensor] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        numbers = {"client": self.client, "aggregation_weight": self.aggregation_weight}
        tensors = wire.under("init_upload", self.init_upload)
        return wire.pack("prepare_reply", numbers, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str
    ) -> PrepareReply:
        message = wire.unpack(data, "prepare_reply", sender)
        message.only((), "init_upload")
        return cls(
            message.client(),
            message.number("aggregation_weight", wire.LARGEST),
            message.tensors_under("init_upload"),
        )


@dataclass(frozen=True)
class InitBroadcast:
    """Round 0, server to all clients: the method's message."""

    tensors: Mapping[str, Tensor]

    def to_bytes(self) -> bytes:
        return wire.pack(
            "init_broadcast", {}, wire.under("init_broadcast", self.tensors)
        )

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str = "the server"
    ) -> InitBroadcast:
        message = wire.unpack(data, "init_broadcast", sender)
        message.only((), "init_broadcast")
        return cls(message.tensors_under("init_broadcast"))
