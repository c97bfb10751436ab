"""FedAvg (McMahan et al., 2017)."""

from __future__ import annotations

from federatedscope_ggeur.methods.base import Method, weighted_mean


class FedAvg(Method):
    """The next weights are the mean of the clients', weighted by n_k."""

    name = "fedavg"

    def step(self, params, updates, state, context):
        return weighted_mean(params, updates), state
