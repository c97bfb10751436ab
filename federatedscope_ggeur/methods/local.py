"""No federation: the lower bound of what clients gain by joining one."""

from __future__ import annotations

from federatedscope_ggeur.methods.base import (
    LocalContext,
    LocalHooks,
    Method,
    initial_weights,
)
from federatedscope_ggeur.methods.registry import register_method


@register_method("local")
class Local(Method):
    """Every client trains a model of its own, which never leaves it.

    It begins with the model that a federation begins with, and goes on from its own
    last weights in each round that it is drawn for. A client scores and leaves its own
    model.
    """

    meaning = "a bound: every client trains a model of its own, which never leaves it"
    federated = False
    keeps_state = True

    def local(self, context: LocalContext) -> LocalHooks:
        def finish(outcome):
            return {}, {"params": outcome.weights}

        return LocalHooks(start=self.eval_params(context), finish=finish)

    def eval_params(self, context):
        if "params" in context.state:
            return context.state["params"]
        return initial_weights(context.model, context.seed)

    def step(self, params, updates, state, context):
        return params, state
