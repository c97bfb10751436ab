"""FedDyn (Acar et al., 2021): dynamic regularisation."""

from __future__ import annotations

import torch

from federatedscope_ggeur.settings import Key, positive

from .acknowledged import counted, first_state, kept, next_state
from .base import LocalContext, LocalHooks, Method, weighted_mean
from .contexts import LinearCorrection
from .registry import register_method


@register_method("feddyn")
class FedDyn(Method):
    """FedAvg with a dynamic regulariser; client k stores its own term h_k.

    The local loss is ``CE - <h_k, w> + alpha/2 |w - w_g|^2``.

    After training, a client sets ``h_k -= alpha (w_k - w_g)``. The server updates the
    mean over all clients, h = sum_k pi_k h_k, by ``h -= alpha sum_S pi_k (w_k - w_g)``.
    Then it sets ``w_g = sum_S p_k w_k - h / alpha``.
    """

    meaning = "adds -<h_k, w> + alpha/2 |w - w_g|^2 to the loss"
    source = "Acar 2021"
    receives = "acknowledged rounds"
    SETTINGS = (Key("alpha", 0.5, "Weight of the proximal term.", positive),)
    keeps_state = True
    batched = True

    alpha: float

    def initial_state(self, params, context):
        return first_state(context, h=torch.zeros_like(params))

    def download(self, state):
        return {"acknowledged_rounds": state["acknowledged_rounds"]}

    def local(self, context: LocalContext) -> LocalHooks:
        start = context.broadcast
        h = counted(context, torch.zeros_like(start))
        pull = LinearCorrection(-(h + self.alpha * start), self.alpha)

        def finish(outcome):
            return {}, kept(context, h, h - self.alpha * (outcome.params - start))

        return LocalHooks(add_correction=pull, finish=finish)

    def step(self, params, updates, state, context):
        if not any(update.aggregation_weight for update in updates):
            return params, state  # only clients without data were drawn

        def change(update):
            return update.params - params

        state = next_state("h", change, updates, state, context, -self.alpha)
        return weighted_mean(params, updates) - state["h"] / self.alpha, state
