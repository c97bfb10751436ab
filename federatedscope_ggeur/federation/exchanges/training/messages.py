"""The messages of a training round: weights, and trained weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.schema import MessageSchema

F32 = torch.float32

#: Larger weights overflow float32 when they are added up over clients.
LARGEST_WEIGHT = 1e30
_WEIGHTS = -LARGEST_WEIGHT, LARGEST_WEIGHT


@dataclass(frozen=True)
class Broadcast:
    """A round, server to client: the weights [P] and the method's tensors.

    Attributes
    ----------
    round_number : int
    params : Tensor of shape (P,)
    download : mapping from str to Tensor
    temperature : float
        The number by which the head's logits have been divided.
    absent : tuple of int
        The classes that nobody sent statistics of. Clients tell their test rows apart.
    """

    round_number: int
    params: Tensor
    download: Mapping[str, Tensor] = field(default_factory=dict)
    temperature: float = 1.0
    absent: tuple[int, ...] = ()

    def to_bytes(self) -> bytes:
        tensors = {"params": self.params, **wire.under("download", self.download)}
        numbers: dict[str, float] = {"round": self.round_number}
        if self.temperature != 1.0:
            numbers["temperature"] = self.temperature
        if self.absent:
            tensors["absent"] = torch.tensor(self.absent)
        return wire.pack("broadcast", numbers, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str = "the server"
    ) -> Broadcast:
        message = wire.unpack(data, "broadcast", sender)
        message.only(("params", "absent"), "download")
        absent = ()
        if message.has("absent"):
            absent = tuple(
                message.labels("absent", schema.num_classes, distinct=True).tolist()
            )
        return cls(
            message.integer("round"),
            message.tensor("params", F32, (schema.num_parameters,)),
            message.tensors_under("download"),
            message.number("temperature") if message.says("temperature") else 1.0,
            absent,
        )


@dataclass(frozen=True)
class ClientUpdate:
    """A round, client to server: the trained weights [P] and the method's tensors."""

    client: int
    round_number: int
    params: Tensor
    steps: int
    upload: Mapping[str, Tensor] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        return wire.pack(*self._message)

    @property
    def packed_size(self) -> int:
        """The length of `to_bytes`."""
        uploads = [(n, t.dtype, tuple(t.shape)) for n, t in self.upload.items()]
        return _packed_size(
            len(str(self.client)),
            len(str(self.round_number)),
            len(str(self.steps)),
            self.params.shape[0],
            tuple(uploads),
        )

    @property
    def _message(self) -> tuple[str, Mapping[str, int], Mapping[str, Tensor]]:
        numbers = {
            "client": self.client,
            "round": self.round_number,
            "steps": self.steps,
        }
        tensors = {"params": self.params, **wire.under("upload", self.upload)}
        return "update", numbers, tensors

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str
    ) -> ClientUpdate:
        message = wire.unpack(data, "update", sender)
        message.only(("params",), "upload")
        return cls(
            message.client(),
            message.integer("round", 1),
            message.tensor("params", F32, (schema.num_parameters,), _WEIGHTS),
            message.integer("steps"),
            message.tensors_under("upload"),
        )


@lru_cache(maxsize=1024)
def _packed_size(
    client: int, round_number: int, steps: int, params: int, uploads: tuple
) -> int:
    """The length of an update whose numbers have so many digits."""
    numbers = [10 ** (digits - 1) for digits in (client, round_number, steps)]
    tensors = {name: torch.empty(shape, dtype=kind) for name, kind, shape in uploads}
    client, round_number, steps = numbers
    weights = torch.empty(params, dtype=F32)
    update = ClientUpdate(client, round_number, weights, steps, tensors)
    return wire.packed_size(*update._message)
