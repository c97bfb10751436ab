"""The messages of a training round: weights, and trained weights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor

from federatedscope_ggeur.federation import wire

F32 = torch.float32

#: Larger weights overflow float32 when they are added up over clients.
LARGEST_WEIGHT = 1e30
_WEIGHTS = -LARGEST_WEIGHT, LARGEST_WEIGHT


class Broadcast(wire.Payload, kind="broadcast"):
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

    round_number: int = wire.integer(name="round")
    params: Tensor = wire.tensor(F32, ("num_parameters",))
    download: Mapping[str, Tensor] = wire.tensors(default_factory=dict)
    temperature: float = wire.number(default=1.0, optional=True)
    absent: tuple[int, ...] = wire.labels(
        distinct=True, converts=wire.INTEGERS, default=(), optional=True
    )


class ClientUpdate(wire.Payload, kind="update"):
    """A round, client to server: the trained weights [P] and the method's tensors."""

    client: int = wire.client()
    round_number: int = wire.integer(least=1, name="round")
    params: Tensor = wire.tensor(F32, ("num_parameters",), _WEIGHTS)
    steps: int = wire.integer()
    upload: Mapping[str, Tensor] = wire.tensors(default_factory=dict)

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
    return wire.packed_size("update", *update.write())
