"""Training without a federation, as a baseline: do clients gain by joining?"""

from __future__ import annotations

from .base import LocalContext, LocalHooks, Method, initial_weights
from .registry import register_method


@register_method("local")
class Local(Method):
    """Every client trains its own model and never sends it.

    A client begins with the same model as a federation. In each round for which it is
    drawn, it continues from its own last weights. It scores and saves its own model.
    """

    meaning = "a baseline: every client trains its own model and never sends it"
    federated = False
    keeps_state = True
    batched = True

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
