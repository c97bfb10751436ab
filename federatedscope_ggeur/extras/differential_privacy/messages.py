"""The messages of a release without secure sums: one vector per client and stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.schema import MessageSchema

U8, I64, F64 = torch.uint8, torch.int64, torch.float64
SESSION_BYTES = 16


@dataclass(frozen=True)
class ReleaseRequest:
    """Round 0, server to all clients: asks for the vectors of one stage.

    Attributes
    ----------
    session : bytes
    stage : {"moments", "spread"}
    centre : Tensor of shape (D,), float64
        In stage "spread" clients subtract it from their rows; in "moments" it is 0.
    """

    session: bytes
    stage: str
    centre: Tensor

    def to_bytes(self) -> bytes:
        tensors = {"session": _of_session(self.session), "centre": self.centre}
        return wire.pack("release_request", {"stage": self.stage}, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str = "the server"
    ) -> ReleaseRequest:
        message = wire.unpack(data, "release_request", sender)
        message.only(("session", "centre"))
        session, stage = _session(message), message.text("stage")
        return cls(session, stage, message.tensor("centre", F64, (schema.dim,)))


@dataclass(frozen=True)
class ReleaseVector:
    """Round 0, client to server: the client's vector of one stage.

    Attributes
    ----------
    client : int
    session, stage : bytes, str
    values : Tensor of shape (P,), int64
        In steps of the grid; see `noisy_release`.
    """

    client: int
    session: bytes
    stage: str
    values: Tensor

    def to_bytes(self) -> bytes:
        numbers = {"client": self.client, "stage": self.stage}
        tensors = {"session": _of_session(self.session), "values": self.values}
        return wire.pack("release_vector", numbers, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str
    ) -> ReleaseVector:
        message = wire.unpack(data, "release_vector", sender)
        message.only(("session", "values"))
        session, stage = _session(message), message.text("stage")
        values = message.tensor("values", I64, (None,))
        return cls(message.client(), session, stage, values)


def _of_session(session: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(session, np.uint8).copy())


def _session(message: wire.Message) -> bytes:
    return message.tensor("session", U8, (SESSION_BYTES,)).numpy().tobytes()
