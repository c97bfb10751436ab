"""FedBN (Li et al., 2021): every client keeps its own BatchNorm layers."""

from __future__ import annotations

from .base import Method
from .own_part import keeping, with_own
from .registry import register_method


@register_method("fedbn")
class FedBN(Method):
    """Each client keeps its own BatchNorm layers; all other weights are averaged.

    A BatchNorm layer has scales, shifts and running statistics. A client scores and
    saves the global model with its own BatchNorm layers. Clients also send these
    layers. The global model has their mean, for clients that have not trained, such as
    unseen ones. Without BatchNorm the method is FedAvg, to the bit.
    """

    meaning = "every client keeps its own BatchNorm layers, and scores with them"
    source = "Li 2021 (FedBN)"
    keeps_state = True
    batched = True
    needs_norms = True

    def local(self, context):
        return keeping(context, context.model.norm_mask)

    def eval_params(self, context):
        return with_own(context, context.model.norm_mask)
