"""FedAvgM (Hsu et al., 2019): momentum on the server."""

from __future__ import annotations

import torch

from federatedscope_ggeur.settings import Key, below, positive

from .base import Method, weighted_mean
from .registry import register_method


@register_method("fedavgm")
class FedAvgM(Method):
    """Momentum on the server: ``v = b v + (w_g - sum p_k w_k)``, then ``w_g -= lr v``.

    b is `momentum`. v stays from round to round.
    """

    meaning = "momentum on the server"
    source = "Hsu 2019"
    SETTINGS = (
        Key("momentum", 0.9, "The server's momentum.", below(1.0)),
        Key("lr", 1.0, "The server's learning rate.", positive),
    )
    lower_if_diverging = ("lr",)

    momentum: float
    lr: float

    def initial_state(self, params, context):
        return {"v": torch.zeros_like(params)}

    def step(self, params, updates, state, context):
        if not any(update.aggregation_weight for update in updates):
            return params, state  # only clients without data were drawn
        v = self.momentum * state["v"] + (params - weighted_mean(params, updates))
        return params - self.lr * v, {"v": v}
