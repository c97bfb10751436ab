"""Optimisers on the weights of several clients, [A, P].

The first clients may go on when the others have taken all their steps. So each step is
told for how many clients it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from federatedscope_ggeur.federation.optimizers import OptimizerSettings


class BatchedSGD:
    """SGD with momentum and weight decay. Rates and momenta may differ by client.

    Parameters
    ----------
    weights, buffer : Tensor of shape (K, P)
        The buffer begins with 0.
    settings : OptimizerSettings
        Its weight decay is that of all clients.

    Attributes
    ----------
    rates, momenta : Tensor of shape (K,)
    weight_decay : float
    """

    def __init__(self, weights: Tensor, buffer: Tensor, settings: OptimizerSettings):
        self.buffer, self._weights = buffer, weights
        self.rates, self.momenta = weights.new_empty(2, len(weights))
        self.weight_decay = float(settings.options.get("weight_decay", 0.0))
        self._held: list[OptimizerSettings] = []

    def load(self, settings: Sequence[OptimizerSettings]) -> None:
        """Take the rates and momenta of K clients."""
        held = list(settings)
        if held == self._held:  # a GPU waits for each copy
            return
        self._held, new = held, self.rates.new_tensor
        self.rates.copy_(new([one.lr for one in held]))
        self.momenta.copy_(new([one.momentum for one in held]))

    def begin(self, clients: int) -> None:
        """Decay the buffer, to which the caller then adds the gradient."""
        self.buffer[:clients].mul_(self.momenta[:clients, None])

    def step(self, clients: int, moves: Tensor | None = None) -> None:
        """Take a step. Only clients with a true number in `moves` [A] move."""
        weights, buffer = self._weights[:clients], self.buffer[:clients]
        rates = self.rates[:clients]
        if moves is not None:
            rates = rates * moves
        if self.weight_decay:
            buffer.add_(weights, alpha=self.weight_decay)
        weights.addcmul_(buffer, rates[:, None], value=-1)


class BatchedTorch:
    """An optimiser of `torch.optim`, with the same settings for all clients.

    Its steps must not depend on other numbers than those of one weight.
    """

    def __init__(self, weights: Tensor, buffer: Tensor, settings: OptimizerSettings):
        self.buffer, self._weights, self._clients = buffer, weights, len(weights)
        self._parameter = torch.nn.Parameter(weights)
        self._parameter.grad = buffer
        make = getattr(torch.optim, settings.type)
        self._optimizer = make([self._parameter], lr=settings.lr, **settings.options)

    def begin(self, clients: int) -> None:
        """Clear the buffer, to which the caller then adds the gradient."""
        self._narrow(clients)
        self.buffer[:clients].zero_()

    def step(self, clients: int, moves: Tensor | None = None) -> None:
        """Take a step of the first clients."""
        self._optimizer.step()

    def _narrow(self, clients: int) -> None:
        """Go on with fewer clients."""
        if clients == self._clients:
            return
        shape = self._parameter.shape
        for name, value in self._optimizer.state[self._parameter].items():
            if isinstance(value, Tensor) and value.shape == shape:
                self._optimizer.state[self._parameter][name] = value[:clients]
        self._parameter.grad = None
        self._parameter.data = self._weights[:clients]
        self._parameter.grad = self.buffer[:clients]
        self._clients = clients


def is_plain_sgd(settings: OptimizerSettings) -> bool:
    """Whether `BatchedSGD` is this optimiser."""
    options = {"momentum", "weight_decay"}
    return settings.type == "SGD" and set(settings.options) <= options
