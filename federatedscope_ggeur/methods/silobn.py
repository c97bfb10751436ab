"""SiloBN (Andreux et al., 2020): every client keeps its own running statistics."""

from __future__ import annotations

import torch
from torch import Tensor

from federatedscope_ggeur.models import Model, num_buffers, num_parameters

from .base import Method
from .own_part import keeping, with_own
from .registry import register_method


@register_method("silobn")
class SiloBN(Method):
    """Each client keeps its own running statistics of BatchNorm.

    All other weights are averaged, including the scales and shifts of BatchNorm.
    Scoring, unseen clients and saved models are as in FedBN.
    """

    meaning = "every client keeps its own running statistics of BatchNorm"
    source = "Andreux 2020"
    keeps_state = True
    batched = True
    needs_norms = True

    def local(self, context):
        return keeping(context, _statistics(context.model))

    def eval_params(self, context):
        return with_own(context, _statistics(context.model))


def _statistics(model: Model) -> Tensor:
    """A mask of the running statistics, which are the last Q numbers: bool [P + Q]."""
    size = num_parameters(model)
    return torch.arange(size) >= size - num_buffers(model)
