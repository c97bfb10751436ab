"""Optimisers on one flat vector of parameters.

Each optimiser has a `buffer`. In each step the caller adds the gradient by ``buffer =
beta * buffer + gradient``. Then `step` changes the parameters. Momentum costs nothing
in this way: the matrix product that makes the gradient also decays the buffer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Union

import torch
from torch import Tensor
from torch.optim.adam import adam


@dataclass(frozen=True)
class OptimizerSettings:
    """The name and the keyword arguments of an optimiser of `torch.optim`.

    Attributes
    ----------
    type : str
        "SGD" or "Adam".
    lr : float
    options : mapping
        E.g. ``{"momentum": 0.9, "weight_decay": 1e-5}``.
    """

    type: str = "SGD"
    lr: float = 0.1
    options: Mapping[str, Any] = field(default_factory=dict)

    def build(
        self, vector: Tensor, buffer: Tensor
    ) -> FlatSGD | FlatAdam | TorchOptimizer:
        """Make a new optimiser that changes `vector` in place.

        `buffer`, of the vector's shape, becomes the optimiser's buffer. It is set to 0
        if the optimiser has momentum. Otherwise the first step overwrites it.
        """
        if self.momentum:
            buffer.zero_()
        if self.type == "SGD" and set(self.options) <= {"momentum", "weight_decay"}:
            return FlatSGD(vector, buffer, self.lr, **self.options)
        plain = set(self.options) <= {"betas", "eps", "weight_decay"}
        if self.type == "Adam" and plain and _has_fused_adam():
            return FlatAdam(vector, buffer, self.lr, **self.options)
        return TorchOptimizer(vector, buffer, self)

    @property
    def momentum(self) -> float:
        """The momentum of SGD."""
        return float(self.options.get("momentum", 0.0))

    def reach(self, steps: int) -> float:
        """How far SGD goes in `steps` steps if all gradients are one unit vector.

        The distance is ``lr sum_{i=1..steps} (1 - m^i) / (1 - m)`` with momentum m.
        Each round begins with an empty momentum buffer. For many steps the distance is
        about ``steps lr / (1 - m)``.
        """
        m = self.momentum
        if not m:
            return self.lr * steps
        return self.lr * (steps - m * (1 - m**steps) / (1 - m)) / (1 - m)

    def as_far(
        self, steps: int, fewer: int, momentum: float = 0.0
    ) -> OptimizerSettings:
        """SGD settings that go as far in `fewer` steps as these go in `steps`.

        The new momentum is at least `momentum`. The rate is raised to make up the rest.
        """
        options = dict(self.options)
        if momentum > self.momentum:
            options["momentum"] = momentum
        other = replace(self, options=options)
        reached = other.reach(fewer)
        lr = self.lr * self.reach(steps) / reached if reached else self.lr
        return replace(other, lr=lr)


@dataclass(frozen=True)
class StepSchedule:
    """A schedule that multiplies the rate by `gamma` after every `step_size` rounds."""

    step_size: int
    gamma: float

    def rate(self, lr: float, round_number: int) -> float:
        """The rate in round r = 1, 2, ...: ``lr gamma^floor((r - 1) / step_size)``."""
        return lr * self.gamma ** (max(0, round_number - 1) // self.step_size)


@dataclass(frozen=True)
class CosineSchedule:
    """A schedule that falls as half a cosine, to `least` after `period` rounds.

    If `first` is given, it is the rate of round 1, as in CoOp's first epoch.
    """

    period: int
    least: float = 0.0
    first: float = 0.0

    def rate(self, lr: float, round_number: int) -> float:
        """The rate in round r: ``least + (lr - least)(1 + cos(pi t / T)) / 2``.

        Here t = r - 1, but at most T = `period`.
        """
        done = min(max(0, round_number - 1), self.period)
        if not done and self.first:
            return self.first
        share = (1 + math.cos(math.pi * done / self.period)) / 2
        return self.least + (lr - self.least) * share


Schedule = Union[StepSchedule, CosineSchedule]


class FlatSGD:
    """SGD as in `torch.optim`, on one vector of shape (P,)."""

    def __init__(
        self,
        vector: Tensor,
        buffer: Tensor,
        lr: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ):
        self.buffer, self.beta = buffer, momentum
        descend = partial(vector.add_, buffer, alpha=-lr)

        def decay_and_descend() -> None:
            buffer.add_(vector, alpha=weight_decay)
            descend()

        self.step = decay_and_descend if weight_decay else descend


class FlatAdam:
    """Adam by torch's fused kernel, on one vector of shape (P,).

    `torch.optim.Adam` itself takes more time than its kernel does.
    """

    beta = 0.0

    def __init__(
        self,
        vector: Tensor,
        buffer: Tensor,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        self.buffer = buffer
        means, squares = torch.zeros_like(vector), torch.zeros_like(vector)
        steps = torch.zeros((), dtype=torch.float32, device=vector.device)
        self.step = partial(
            adam,
            [vector],
            [self.buffer],
            exp_avgs=[means],
            exp_avg_sqs=[squares],
            max_exp_avg_sqs=[],
            state_steps=[steps],
            lr=lr,
            beta1=betas[0],
            beta2=betas[1],
            eps=eps,
            weight_decay=weight_decay,
            amsgrad=False,
            maximize=False,
            foreach=False,
            fused=True,
        )


@cache
def _has_fused_adam() -> bool:
    """Whether this torch has the fused Adam kernel for CPUs (since 2.4)."""
    try:
        FlatAdam(torch.zeros(1), torch.zeros(1), 0.1).step()
    except (RuntimeError, TypeError):
        return False
    return True


class TorchOptimizer:
    """Any optimiser of `torch.optim`, with the interface of `FlatSGD`."""

    beta = 0.0

    def __init__(self, vector: Tensor, buffer: Tensor, settings: OptimizerSettings):
        parameter = torch.nn.Parameter(vector)
        self.buffer = parameter.grad = buffer
        make = getattr(torch.optim, settings.type)
        self._optimizer = make([parameter], lr=settings.lr, **settings.options)

    def step(self) -> None:
        self._optimizer.step()
