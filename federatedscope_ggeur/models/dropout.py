"""Dropout whose draws are the same on every device."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from federatedscope_ggeur.machine import sent


class Dropout(nn.Dropout):
    """Works as `nn.Dropout`, but always draws on the CPU."""

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type == "cpu" or not self.training:
            return super().forward(x)
        kept = torch.empty(x.shape, dtype=x.dtype).bernoulli_(1 - self.p)
        return x * sent(kept / (1 - self.p), x.device)
