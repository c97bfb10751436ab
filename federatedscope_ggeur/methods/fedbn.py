"""FedBN (Li et al., 2021): every client keeps its own BatchNorm layers."""

from __future__ import annotations

from federatedscope_ggeur.methods.base import Method
from federatedscope_ggeur.methods.own_part import keeping, with_own
from federatedscope_ggeur.methods.registry import register_method


@register_method("fedbn")
class FedBN(Method):
    """Scales, shifts and running statistics of BatchNorm stay as the client left them;
    all else is averaged.

    A client scores and leaves the global model with its own layers. Clients that have
    not trained, unseen ones too, take the mean of all clients' layers, which for that
    is sent like the rest; so does the global model. Without BatchNorm it is FedAvg, to
    the bit.
    """

    meaning = "every client keeps its own BatchNorm layers, and scores with them"
    source = "Li 2021 (FedBN)"
    keeps_state = True
    needs_norms = True

    def local(self, context):
        return keeping(context, context.model.norm_mask)

    def eval_params(self, context):
        return with_own(context, context.model.norm_mask)
