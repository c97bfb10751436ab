"""Dropout whose draws are the same on every device and in every thread."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from federatedscope_ggeur.machine import sent


class Dropout(nn.Dropout):
    """Works as `nn.Dropout`, but always draws on the CPU, from a generator of its own.

    Attributes
    ----------
    generator : torch.Generator or None
        None draws from torch's global generator.
    """

    generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        kept = torch.empty(x.shape, dtype=x.dtype, device="cpu")
        kept = kept.bernoulli_(1 - self.p, generator=self.generator).div_(1 - self.p)
        return x * sent(kept, x.device)


def draw_from(model: nn.Module, generator: torch.Generator | None) -> bool:
    """Let all dropout layers draw from `generator`; None: from torch's global one.

    Returns whether some layers are torch's own, which know only the global generator.
    """
    others = False
    for layer in model.modules():
        if isinstance(layer, Dropout):
            layer.generator = generator
        else:
            others |= isinstance(layer, nn.modules.dropout._DropoutNd)
    return others
