"""What the methods have in common by which clients keep layers of BatchNorm."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from federatedscope_ggeur.methods import LocalContext, LocalHooks, Method
from federatedscope_ggeur.models import Model
from federatedscope_ggeur.settings import Objection, Objections

from ..keys import OWN


class OwnNorms(Method):
    """Each client keeps some numbers of BatchNorm; all others are averaged.

    A client scores and saves the global model with its own numbers. Clients also send
    these. The global model has their mean, for clients that have not trained, such as
    unseen ones. Without BatchNorm the method is FedAvg, to the bit.
    """

    keeps_state = True
    batched = True

    @classmethod
    def objections(cls, run: Any) -> Objections:
        norms = {"network.norm": ["batch"]} if run[OWN] else {OWN: []}
        yield Objection(cls.chosen_by, norms, "which only changes BatchNorm layers")
        yield from super().objections(run)

    def kept(self, model: Model) -> Tensor:
        """Which numbers a client keeps: bool [P + Q]."""
        raise NotImplementedError

    def local(self, context: LocalContext) -> LocalHooks:
        own = self.kept(context.model)

        def finish(outcome):
            return {}, {"own": outcome.weights[own.to(outcome.weights.device)]}

        return LocalHooks(start=self.eval_params(context), finish=finish)

    def eval_params(self, context: LocalContext) -> Tensor:
        # Before the client's first round it has no numbers of its own.
        if "own" not in context.state:
            return context.weights
        weights = context.weights.clone()
        own = self.kept(context.model)
        weights[own.to(weights.device)] = context.state["own"]
        return weights
