"""FedBN (Li et al., 2021): every client keeps its own BatchNorm layers."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from federatedscope_ggeur.methods import (
    LocalContext,
    LocalHooks,
    Method,
    register_method,
)
from federatedscope_ggeur.settings import Objection, Objections

from ..keys import OWN


@register_method("fedbn")
class FedBN(Method):
    """Each client keeps its own BatchNorm layers; all other weights are averaged.

    A BatchNorm layer has scales, shifts and running statistics. A client scores and
    saves the global model with its own numbers. Clients also send these. The global
    model has their mean, for clients that have not trained, such as unseen ones.
    Without BatchNorm the method is FedAvg, to the bit.
    """

    meaning = "every client keeps its own BatchNorm layers, and scores with them"
    source = "Li 2021 (FedBN)"
    keeps_state = True
    batched = True

    @classmethod
    def objections(cls, run: Any) -> Objections:
        norms = {"network.norm": ["batch"]} if run[OWN] else {OWN: []}
        yield Objection(cls.chosen_by, norms, "which only changes BatchNorm layers")
        yield from super().objections(run)

    def local(self, context: LocalContext) -> LocalHooks:
        own = context.model.norm_mask

        def finish(outcome):
            return {}, {"own": outcome.weights[own.to(outcome.weights.device)]}

        return LocalHooks(start=self.eval_params(context), finish=finish)

    def eval_params(self, context: LocalContext) -> Tensor:
        # Before the client's first round it has no numbers of its own.
        if "own" not in context.state:
            return context.weights
        weights = context.weights.clone()
        own = context.model.norm_mask
        weights[own.to(weights.device)] = context.state["own"]
        return weights
