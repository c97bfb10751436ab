"""`torch.optim.Adam` for one vector. Importing torch's own takes seconds."""

from __future__ import annotations

import torch
from torch import Tensor


class Adam:
    """Updates `vector` in place, given its gradients.

    Parameters
    ----------
    vector : Tensor of shape (P,)
    lr : float
        It may be changed between steps.
    betas : pair of float
        Decays of the means of gradients and of their squares.
    """

    def __init__(
        self, vector: Tensor, lr: float, betas: tuple[float, float] = (0.9, 0.999)
    ):
        self.vector, self.lr, self.betas, self.steps = vector, lr, betas, 0
        self.mean = torch.zeros_like(vector)
        self.square = torch.zeros_like(vector)

    @torch.no_grad()
    def step(self, gradient: Tensor) -> None:
        """One step along `gradient` [P]."""
        first, second = self.betas
        self.steps += 1
        self.mean.lerp_(gradient, 1 - first)
        self.square.lerp_(gradient.square(), 1 - second)
        scale = (self.square / (1 - second**self.steps)).sqrt() + 1e-8
        self.vector -= self.lr / (1 - first**self.steps) * self.mean / scale
