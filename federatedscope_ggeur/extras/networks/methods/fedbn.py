"""FedBN (Li et al., 2021): every client keeps its own BatchNorm layers."""

from __future__ import annotations

from torch import Tensor

from federatedscope_ggeur.methods import register_method
from federatedscope_ggeur.models import Model

from .own_norms import OwnNorms


@register_method("fedbn")
class FedBN(OwnNorms):
    """Each client keeps its own BatchNorm layers; all other weights are averaged.

    A BatchNorm layer has scales, shifts and running statistics.
    """

    meaning = "every client keeps its own BatchNorm layers, and scores with them"
    source = "Li 2021 (FedBN)"

    def kept(self, model: Model) -> Tensor:
        return model.norm_mask
