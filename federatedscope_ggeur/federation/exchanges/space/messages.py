"""The messages of the space: totals of rows up, the space down."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.geometry import LARGEST_EMBEDDING, SPACES, Space, Totals

F32, F64 = torch.float32, torch.float64


@dataclass(frozen=True)
class TotalsUpload:
    """Round 0, up: where a client's rows lie.

    Attributes
    ----------
    client : int
    totals : Totals
        Of the rows that are in no statistics.
    within : float
        The trace of the within-class scatter of the other rows, if their statistics are
        means alone.
    """

    client: int
    totals: Totals
    within: float = 0.0

    def to_bytes(self) -> bytes:
        totals = self.totals
        numbers = {
            "client": self.client,
            "count": totals.count,
            "spread": totals.spread,
            "within": self.within,
        }
        return wire.pack("totals", numbers, {"mean": totals.mean})

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str
    ) -> TotalsUpload:
        message = wire.unpack(data, "totals", sender)
        message.only(("mean",))
        count = message.integer("count")
        mean = message.tensor("mean", F64, (schema.dim,))
        if (mean.abs() > LARGEST_EMBEDDING * (count > 0)).any():
            limit = f"{LARGEST_EMBEDDING:g}" if count else "0, with no rows"
            raise message.refuse("mean", f"must lie within {limit}")
        most = LARGEST_EMBEDDING**2 * schema.dim * wire.LARGEST
        spread = message.number("spread", most if count > 1 else 0.0)
        within = message.number(
            "within", most if schema.statistics.content == "means" else 0.0
        )
        return cls(message.client(), Totals(count, mean, spread), within)


@dataclass(frozen=True)
class SpaceBroadcast:
    """Round 0, down, the same for every client: the space of training, not raw."""

    space: Space

    def to_bytes(self) -> bytes:
        space, triangle = self.space, torch.zeros(0, dtype=F32)
        if space.matrix is not None:
            upper = torch.triu_indices(space.dim, space.dim)
            triangle = space.matrix[upper[0], upper[1]].to(F32)
        numbers = {"kind": space.kind, "scale": space.scale}
        tensors = {"centre": space.centre, "triangle": triangle}
        return wire.pack("space", numbers, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str = "the server"
    ) -> SpaceBroadcast:
        message, dim = wire.unpack(data, "space", sender), schema.dim
        message.only(("centre", "triangle"))
        kind, scale = message.text("kind"), message.number("scale")
        if kind not in SPACES:
            raise message.refuse("kind", f"{kind!r:.80} is none of {SPACES}")
        if not scale > 0:
            raise message.refuse("scale", "must be above 0")
        centre = message.tensor("centre", F64, (dim,))
        size = dim * (dim + 1) // 2 if kind == "whitened" else 0
        triangle = message.tensor("triangle", F32, (size,))
        if not size:
            return cls(Space(kind, centre, scale))
        matrix = _symmetric(triangle, dim)
        if torch.linalg.cholesky_ex(matrix).info != 0:
            raise message.refuse("triangle", "the matrix is not positive definite")
        return cls(Space(kind, centre, scale, matrix))


def _symmetric(triangle: Tensor, dim: int) -> Tensor:
    """The matrix [D, D], float64, from its upper triangle, row by row."""
    matrix = torch.zeros(dim, dim, dtype=F64)
    upper = torch.triu_indices(dim, dim)
    matrix[upper[0], upper[1]] = triangle.double()
    return matrix + matrix.T - matrix.diag().diag()
