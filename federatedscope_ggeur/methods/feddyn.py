"""FedDyn (Acar et al., 2021): dynamic regularisation."""

from __future__ import annotations

import torch

from federatedscope_ggeur.methods.base import LocalContext, LocalHooks, weighted_mean
from federatedscope_ggeur.methods.fedavg import FedAvg


class FedDyn(FedAvg):
    """Local loss ``CE - <h_k, w> + alpha/2 |w - w_g|^2``; the h_k keep what is left.

    After training ``h_k -= alpha (w_k - w_g)``; the server does the same with the
    mean over all clients, ``h -= alpha sum_S pi_k (w_k - w_g)``, then
    ``w_g = sum_S p_k w_k - h / alpha``. It holds that h = sum_k pi_k h_k.

    Parameters
    ----------
    alpha : float
        Above 0.
    """

    name = "feddyn"

    def __init__(self, alpha: float):
        self.alpha = alpha

    def initial_state(self, params, context):
        return {"h": torch.zeros_like(params)}

    def local(self, context: LocalContext) -> LocalHooks:
        start = context.broadcast
        h = context.state.get("h", torch.zeros_like(start))

        def add_correction(params, gradient):
            gradient.add_(params - start, alpha=self.alpha).sub_(h)

        def finish(outcome):
            return {}, {"h": h - self.alpha * (outcome.params - start)}

        return LocalHooks(add_correction=add_correction, finish=finish)

    def step(self, params, updates, state, context):
        if not any(update.weight for update in updates):
            return params, state  # only clients without data were drawn
        everyone = sum(context.weights.values())
        moved = sum(u.weight / everyone * (u.params - params) for u in updates)
        h = state["h"] - self.alpha * moved
        return weighted_mean(params, updates) - h / self.alpha, {"h": h}
