"""`torch.optim.Adam` for one vector, because importing torch's own takes seconds."""

from __future__ import annotations

import torch
from torch import Tensor


class Adam:
    """The optimiser Adam. It updates `vector` in place.

    Parameters
    ----------
    vector : Tensor of shape (P,)
    lr : float
        The learning rate. It may be changed between steps.
    betas : pair of float
        Decay rates of the mean of gradients and of the mean of their squares.
    """

    def __init__(
        self, vector: Tensor, lr: float, betas: tuple[float, float] = (0.9, 0.999)
    ):
        self.vector, self.lr, self.betas, self.steps = vector, lr, betas, 0
        self.mean = torch.zeros_like(vector)
        self.square = torch.zeros_like(vector)

    @torch.no_grad()
    def step(self, gradient: Tensor) -> None:
        """Take one step, given the gradient [P]."""
        first, second = self.betas
        self.steps += 1
        self.mean.lerp_(gradient, 1 - first)
        self.square.lerp_(gradient.square(), 1 - second)
        scale = (self.square / (1 - second**self.steps)).sqrt() + 1e-8
        self.vector -= self.lr / (1 - first**self.steps) * self.mean / scale
