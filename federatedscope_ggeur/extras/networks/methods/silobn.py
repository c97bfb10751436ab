"""SiloBN (Andreux et al., 2020): every client keeps its own running statistics."""

from __future__ import annotations

import torch
from torch import Tensor

from federatedscope_ggeur.methods import register_method
from federatedscope_ggeur.models import Model, num_buffers, num_parameters

from .own_norms import OwnNorms


@register_method("silobn")
class SiloBN(OwnNorms):
    """Each client keeps its own running statistics of BatchNorm.

    All other weights are averaged, including the scales and shifts of BatchNorm.
    """

    meaning = "every client keeps its own running statistics of BatchNorm"
    source = "Andreux 2020"

    def kept(self, model: Model) -> Tensor:
        """The running statistics, which are the last Q numbers."""
        size = num_parameters(model)
        return torch.arange(size) >= size - num_buffers(model)
