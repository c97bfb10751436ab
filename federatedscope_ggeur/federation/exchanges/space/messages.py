"""The messages of the space: clients' totals, and the space for clients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.geometry import LARGEST_EMBEDDING, SPACES, Space, Totals

F32, F64 = torch.float32, torch.float64
_ROUNDING = 1e-6


@dataclass(frozen=True)
class TotalsUpload:
    """Round 0, client to server: mean and variances of the client's rows.

    Attributes
    ----------
    client : int
    totals : Totals
        Totals of the rows that no statistics contain.
    within : float
        The trace of the within-class scatter of the other rows, if their statistics
        have only means.
    within_squares : Tensor of shape (D,), float64, or None
        The diagonal of the within-class scatter, if it is sent.
    """

    client: int
    totals: Totals
    within: float = 0.0
    within_squares: Tensor | None = None

    def to_bytes(self) -> bytes:
        totals = self.totals
        numbers = {
            "client": self.client,
            "count": totals.count,
            "spread": totals.spread,
            "within": self.within,
        }
        tensors = {"mean": totals.mean, "squares": totals.squares}
        if self.within_squares is not None:
            tensors["within_squares"] = self.within_squares
        return wire.pack("totals", numbers, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str
    ) -> TotalsUpload:
        message = wire.unpack(data, "totals", sender)
        message.only(("mean", "squares", "within_squares"))
        count = message.integer("count")
        mean = message.tensor("mean", F64, (schema.dim,))
        if (mean.abs() > LARGEST_EMBEDDING * (count > 0)).any():
            limit = f"{LARGEST_EMBEDDING:g}" if count else "must be 0 without rows"
            raise message.refuse("mean", f"must lie within {limit}")
        most = LARGEST_EMBEDDING**2 * schema.dim * wire.LARGEST
        spread = message.number("spread", most if count > 1 else 0.0)
        within = message.number(
            "within", most if schema.statistics.content == "means" else 0.0
        )
        squares = _squares(message, "squares", spread, schema.dim)
        inside = None
        if message.has("within_squares"):
            inside = _squares(message, "within_squares", within, schema.dim)
        totals = Totals(count, mean, spread, squares)
        return cls(message.client(), totals, within, inside)


def _squares(message: wire.Message, name: str, most: float, dim: int) -> Tensor:
    """Read the sums of squares of each dimension [D], at most `most` together."""
    squares = message.tensor(name, F64, (dim,))
    if (squares < 0).any():
        raise message.refuse(name, "must not be negative")
    if float(squares.sum()) > (1 + _ROUNDING) * most:
        raise message.refuse(
            name, f"must sum to at most {most:g}, the spread of the rows"
        )
    return squares


@dataclass(frozen=True)
class SpaceBroadcast:
    """Round 0, server to all clients: the space of training, if it is not raw."""

    space: Space

    def to_bytes(self) -> bytes:
        space, triangle = self.space, torch.zeros(0, dtype=F32)
        if space.matrix is not None:
            upper = torch.triu_indices(space.dim, space.dim)
            triangle = space.matrix[upper[0], upper[1]].to(F32)
        numbers = {"kind": space.kind, "scale": space.scale}
        tensors = {"centre": space.centre, "triangle": triangle}
        if space.scales is not None:
            tensors["scales"] = space.scales
        return wire.pack("space", numbers, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str = "the server"
    ) -> SpaceBroadcast:
        message, dim = wire.unpack(data, "space", sender), schema.dim
        kind, scale = message.text("kind"), message.number("scale")
        own = ("scales",) if kind == "standard" else ()
        message.only(("centre", "triangle", *own))
        if kind not in SPACES:
            raise message.refuse("kind", f"expected one of {SPACES}, got {kind!r:.80}")
        if not scale > 0:
            raise message.refuse("scale", "must be above 0")
        centre = message.tensor("centre", F64, (dim,))
        size = dim * (dim + 1) // 2 if kind == "whitened" else 0
        triangle = message.tensor("triangle", F32, (size,))
        if not size:
            return cls(Space(kind, centre, scale, scales=_scales(message, dim)))
        matrix = _symmetric(triangle, dim)
        if torch.linalg.cholesky_ex(matrix).info != 0:
            raise message.refuse("triangle", "the matrix is not positive definite")
        return cls(Space(kind, centre, scale, matrix))


def _scales(message: wire.Message, dim: int) -> Tensor | None:
    """Read the scale of each dimension [D]; None if the message has no scales."""
    if not message.has("scales"):
        return None
    scales = message.tensor("scales", F64, (dim,))
    if not (scales > 0).all():
        raise message.refuse("scales", "must be above 0")
    return scales


def _symmetric(triangle: Tensor, dim: int) -> Tensor:
    """Rebuild a symmetric matrix [D, D], float64, from its upper triangle by rows."""
    matrix = torch.zeros(dim, dim, dtype=F64)
    upper = torch.triu_indices(dim, dim)
    matrix[upper[0], upper[1]] = triangle.double()
    return matrix + matrix.T - matrix.diag().diag()
