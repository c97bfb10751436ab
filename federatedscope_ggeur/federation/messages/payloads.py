"""What client and server say to each other: frozen payloads and their bytes.

`payload.to_bytes()` and `Payload.from_bytes(data, schema, sender)` are inverse up to
the rounding of vectors to float32. Whatever arrives is validated there, before anything
uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor

from federatedscope_ggeur.federation.evaluation import SPLITS, Score
from federatedscope_ggeur.federation.messages import wire
from federatedscope_ggeur.federation.messages.schema import MessageSchema
from federatedscope_ggeur.geometry import GeometricShape

F32, I64 = torch.float32, torch.int64


@dataclass(frozen=True)
class Geometry:
    """Round 0, down, the same for everyone: the global shape of each class.

    Attributes
    ----------
    shapes : mapping from class to GeometricShape
    pooled : bool
        They are one and the same for all classes, and travel once.
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
            raise message.refuse("eigenvectors", "eigenvectors must have length 1")
        parts = zip(values.split(ranks.tolist()), vectors.split(ranks.tolist()))
        shapes = [GeometricShape(v, e.T) for v, e in parts]
        if schema.pooled_geometry:
            shapes = shapes * len(labels)
        return cls(dict(zip(labels.tolist(), shapes)), schema.pooled_geometry)


@dataclass(frozen=True)
class Prototypes:
    """Round 0, down to one client: class means of other domains or clients.

    Attributes
    ----------
    labels : Tensor of shape (P,), int64
    prototypes : Tensor of shape (P, D), float32
    counts : Tensor of shape (P,), int64, or None
        Where statistics are summed: these are the means over all clients, on raw
        embeddings, of so many rows each.
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
        message.only(("labels", "prototypes", *(("counts",) if schema.summed else ())))
        labels = message.labels("labels", schema.num_classes, distinct=schema.summed)
        means = message.tensor("prototypes", F32, (len(labels), schema.dim))
        if not schema.summed:
            return cls(labels, means)
        counts = message.tensor("counts", I64, (len(labels),))
        if ((counts < 1) | (counts > wire.LARGEST)).any():
            raise message.refuse("counts", f"must lie in 1..{wire.LARGEST}")
        return cls(labels, means, counts)


@dataclass(frozen=True)
class PrepareReply:
    """Round 0, up: what the client counts for, and what its method sends once."""

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
    """Round 0, down, the same for everyone: what the method made of all uploads."""

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


@dataclass(frozen=True)
class Broadcast:
    """A round, down: the head's weights [P] and what the method adds."""

    round_number: int
    params: Tensor
    download: Mapping[str, Tensor] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        tensors = {"params": self.params, **wire.under("download", self.download)}
        return wire.pack("broadcast", {"round": self.round_number}, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str = "the server"
    ) -> Broadcast:
        message = wire.unpack(data, "broadcast", sender)
        message.only(("params",), "download")
        return cls(
            message.integer("round"),
            message.tensor("params", F32, (schema.num_parameters,)),
            message.tensors_under("download"),
        )


@dataclass(frozen=True)
class ClientUpdate:
    """A round, up: the trained weights [P] and what the method adds."""

    client: int
    round_number: int
    params: Tensor
    steps: int
    upload: Mapping[str, Tensor] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        numbers = {
            "client": self.client,
            "round": self.round_number,
            "steps": self.steps,
        }
        tensors = {"params": self.params, **wire.under("upload", self.upload)}
        return wire.pack("update", numbers, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str
    ) -> ClientUpdate:
        message = wire.unpack(data, "update", sender)
        message.only(("params",), "upload")
        return cls(
            message.client(),
            message.integer("round", 1),
            message.tensor("params", F32, (schema.num_parameters,)),
            message.integer("steps"),
            message.tensors_under("upload"),
        )


@dataclass(frozen=True)
class ScoreReport:
    """A client's scores: counts, so that the server can add them up by domain.

    Attributes
    ----------
    client, round_number : int
    scores : mapping from split ("train", "val" or "test") to Score
    """

    client: int
    round_number: int
    scores: Mapping[str, Score]

    def to_bytes(self) -> bytes:
        numbers = {
            "client": self.client,
            "round_number": self.round_number,
            "splits": list(self.scores),
        }
        for split, score in self.scores.items():
            numbers.update({f"{split}_{k}": v for k, v in asdict(score).items()})
        return wire.pack("score", numbers, {})

    @classmethod
    def from_bytes(cls, data: bytes, schema: MessageSchema, sender: str) -> ScoreReport:
        message = wire.unpack(data, "score", sender)
        message.only(())
        splits = message.texts("splits")
        if not set(splits) <= set(SPLITS):
            raise message.refuse("splits", f"{splits!r:.80} are not among {SPLITS}")
        scores = {}
        for split in splits:
            fields = (f"{split}_{name}" for name in ("correct", "total", "loss_sum"))
            right, rows, loss = fields
            score = Score(
                message.integer(right), message.integer(rows), message.number(loss)
            )
            if score.correct > score.total:
                raise message.refuse(right, f"{score.correct} of {score.total} rows")
            scores[split] = score
        return cls(message.client(), message.integer("round_number"), scores)
