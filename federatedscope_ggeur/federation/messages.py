"""What client and server say to each other: frozen payloads and their bytes.

`payload.to_bytes()` and `Payload.from_bytes(data, contract, sender)` are inverse up to
float32. Whatever arrives is validated there, before anything uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.geometry import ClassStatistics, GeometricShape

F32, I64 = torch.float32, torch.int64


@dataclass(frozen=True)
class Contract:
    """What both sides know before the first message, to check the others against.

    Attributes
    ----------
    num_classes : int
    dim : int
        Of the embeddings.
    num_parameters : int
        Of the head.
    """

    num_classes: int
    dim: int
    num_parameters: int


@dataclass(frozen=True)
class StatisticsUpload:
    """Round 0, up: a client's class statistics, after the min-count floor.

    A covariance travels exactly (in float32), as the thin factor or as the upper
    triangle, whichever is smaller.
    """

    client: int
    domain: str
    statistics: ClassStatistics

    def to_bytes(self) -> bytes:
        statistics, classes = self.statistics, self.statistics.classes
        dim = statistics.dim
        index = torch.tensor(classes, dtype=I64)
        upper = torch.triu_indices(dim, dim)
        factors, triangles, ranks = [torch.zeros(0, dim)], [], []
        for c in classes:
            if statistics.factor_is_smaller(c):
                factors.append(statistics.factor(c).to(F32))
                ranks.append(len(factors[-1]))
            else:
                triangle = statistics.covariance(c)[upper[0], upper[1]]
                triangles.append(triangle.to(F32))
                ranks.append(-1)
        tensors = {
            "classes": index,
            "counts": statistics.counts[index],
            "means": statistics.means[index].to(F32),
            "ranks": torch.tensor(ranks, dtype=I64),
            "factors": torch.cat(factors),
            "triangles": torch.stack(triangles)
            if triangles
            else torch.zeros(0, upper.shape[1]),
        }
        numbers = {"client": self.client, "domain": self.domain}
        return wire.pack("statistics", numbers, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, contract: Contract, sender: str
    ) -> StatisticsUpload:
        message = wire.unpack(data, "statistics", sender)
        dim, num_classes = contract.dim, contract.num_classes
        labels = message.labels("classes", num_classes, distinct=True)
        k = len(labels)
        counts = message.tensor("counts", I64, (k,))
        if ((counts <= 0) | (counts > wire.LARGEST)).any():
            raise message.refuse("counts", f"counts must lie in 1..{wire.LARGEST}")
        means = message.tensor("means", F32, (k, dim))
        ranks = message.tensor("ranks", I64, (k,))
        factors, triangles = _take_covariances(message, ranks, counts, dim)
        all_counts = torch.zeros(num_classes, dtype=I64)
        all_means = torch.zeros(num_classes, dim, dtype=torch.float64)
        all_counts[labels], all_means[labels] = counts, means.double()
        classes = labels.tolist()
        statistics = ClassStatistics.from_moments(
            all_counts,
            all_means,
            factors={classes[i]: factor for i, factor in factors.items()},
            covariances={classes[i]: sigma for i, sigma in triangles.items()},
        )
        return cls(message.integer("client", 1), message.text("domain"), statistics)


def _take_covariances(message, ranks: Tensor, counts: Tensor, dim: int):
    """Factors and covariance matrices by position in the message's class list."""
    is_factor = ranks >= 0
    if (ranks < -1).any() or (ranks > (counts - 1).clamp(max=dim)).any():
        raise message.refuse("ranks", "a factor has at most n - 1 and at most D rows")
    factors = message.tensor("factors", F32, (int(ranks[is_factor].sum()), dim))
    size = dim * (dim + 1) // 2
    triangles = message.tensor("triangles", F32, (int((~is_factor).sum()), size))
    by_position = dict(
        zip(
            torch.nonzero(is_factor).flatten().tolist(),
            factors.split(ranks[is_factor].tolist()),
        )
    )
    matrices = {}
    upper = torch.triu_indices(dim, dim)
    positions = torch.nonzero(~is_factor).flatten().tolist()
    for position, triangle in zip(positions, triangles):
        sigma = torch.zeros(dim, dim, dtype=torch.float64)
        sigma[upper[0], upper[1]] = triangle.double()
        sigma = sigma + sigma.T - sigma.diag().diag()
        if not _is_positive_semidefinite(sigma):
            raise message.refuse(
                "triangles", "a covariance is not positive semi-definite"
            )
        matrices[position] = sigma
    return by_position, matrices


def _is_positive_semidefinite(sigma: Tensor) -> bool:
    """By one Cholesky of Sigma + eps I; eps covers rounding to float32."""
    diagonal = sigma.diag()
    if not sigma.any():
        return True
    eps = 1e-5 * diagonal.max().clamp(min=0)
    shifted = sigma + eps * torch.eye(len(sigma), dtype=sigma.dtype)
    return bool(torch.linalg.cholesky_ex(shifted).info == 0)


@dataclass(frozen=True)
class Geometry:
    """Round 0, down, the same for everyone: the global shape of each class."""

    shapes: Mapping[int, GeometricShape]

    def to_bytes(self) -> bytes:
        classes = sorted(self.shapes)
        shapes = [self.shapes[c] for c in classes]
        dim = shapes[0].dim if shapes else 0
        empty = torch.zeros(0, dim)
        tensors = {
            "classes": torch.tensor(classes, dtype=I64),
            "ranks": torch.tensor([s.rank for s in shapes], dtype=I64),
            "eigenvalues": torch.cat(
                [empty.new_zeros(0), *(s.eigenvalues.to(F32) for s in shapes)]
            ),
            "eigenvectors": torch.cat(
                [empty, *(s.eigenvectors.T.to(F32) for s in shapes)]
            ),
        }
        return wire.pack("geometry", {}, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, contract: Contract, sender: str = "the server"
    ) -> Geometry:
        message = wire.unpack(data, "geometry", sender)
        labels = message.labels("classes", contract.num_classes, distinct=True)
        dim = contract.dim if len(labels) else 0
        ranks = message.tensor("ranks", I64, (len(labels),))
        if ((ranks < 0) | (ranks > dim)).any():
            raise message.refuse("ranks", f"ranks must lie in 0..{dim}")
        total = int(ranks.sum())
        values = message.tensor("eigenvalues", F32, (total,))
        if (values <= 0).any():
            raise message.refuse("eigenvalues", "eigenvalues must be positive")
        vectors = message.tensor("eigenvectors", F32, (total, dim))
        if ((vectors.norm(dim=1) - 1).abs() > 1e-3).any():
            raise message.refuse("eigenvectors", "eigenvectors must have length 1")
        parts = zip(
            labels.tolist(), values.split(ranks.tolist()), vectors.split(ranks.tolist())
        )
        return cls({c: GeometricShape(v, e.T) for c, v, e in parts})


@dataclass(frozen=True)
class Prototypes:
    """Round 0, down to one client: class means of other domains or clients.

    Attributes
    ----------
    labels : Tensor of shape (P,), int64
    prototypes : Tensor of shape (P, D), float32
    """

    labels: Tensor
    prototypes: Tensor

    def to_bytes(self) -> bytes:
        tensors = {"labels": self.labels, "prototypes": self.prototypes}
        return wire.pack("prototypes", {}, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, contract: Contract, sender: str = "the server"
    ) -> Prototypes:
        message = wire.unpack(data, "prototypes", sender)
        labels = message.labels("labels", contract.num_classes, distinct=False)
        means = message.tensor("prototypes", F32, (len(labels), contract.dim))
        return cls(labels, means)


@dataclass(frozen=True)
class Ready:
    """Round 0, up: the client's weight in averages, and what its method shares."""

    client: int
    weight: float
    shared: Mapping[str, Tensor] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        numbers = {"client": self.client, "weight": self.weight}
        return wire.pack("ready", numbers, _under("shared", self.shared))

    @classmethod
    def from_bytes(cls, data: bytes, contract: Contract, sender: str) -> Ready:
        message = wire.unpack(data, "ready", sender)
        return cls(
            message.integer("client", 1),
            message.number("weight", wire.LARGEST),
            message.tensors_under("shared"),
        )


@dataclass(frozen=True)
class Shared:
    """Round 0, down, the same for everyone: what the method made of all shares."""

    tensors: Mapping[str, Tensor]

    def to_bytes(self) -> bytes:
        return wire.pack("shared", {}, _under("shared", self.tensors))

    @classmethod
    def from_bytes(
        cls, data: bytes, contract: Contract, sender: str = "the server"
    ) -> Shared:
        return cls(wire.unpack(data, "shared", sender).tensors_under("shared"))


@dataclass(frozen=True)
class Broadcast:
    """A round, down: the head's weights [P] and what the method adds."""

    round_number: int
    params: Tensor
    download: Mapping[str, Tensor] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        tensors = {"params": self.params, **_under("download", self.download)}
        return wire.pack("broadcast", {"round": self.round_number}, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, contract: Contract, sender: str = "the server"
    ) -> Broadcast:
        message = wire.unpack(data, "broadcast", sender)
        return cls(
            message.integer("round"),
            message.tensor("params", F32, (contract.num_parameters,)),
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
        tensors = {"params": self.params, **_under("upload", self.upload)}
        return wire.pack("update", numbers, tensors)

    @classmethod
    def from_bytes(cls, data: bytes, contract: Contract, sender: str) -> ClientUpdate:
        message = wire.unpack(data, "update", sender)
        return cls(
            message.integer("client", 1),
            message.integer("round", 1),
            message.tensor("params", F32, (contract.num_parameters,)),
            message.integer("steps"),
            message.tensors_under("upload"),
        )


@dataclass(frozen=True)
class ScoreReport:
    """A client's test result: counts, so that the server can add them up by domain."""

    client: int
    round_number: int
    correct: int
    total: int
    loss_sum: float

    def to_bytes(self) -> bytes:
        return wire.pack("score", dict(self.__dict__), {})

    @classmethod
    def from_bytes(cls, data: bytes, contract: Contract, sender: str) -> ScoreReport:
        message = wire.unpack(data, "score", sender)
        correct, total = message.integer("correct"), message.integer("total")
        if correct > total:
            raise message.refuse("correct", f"{correct} of {total} rows")
        return cls(
            message.integer("client", 1),
            message.integer("round_number"),
            correct,
            total,
            message.number("loss_sum"),
        )


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}
