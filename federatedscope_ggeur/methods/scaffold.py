"""SCAFFOLD (Karimireddy et al., 2020): control variates against client drift."""

from __future__ import annotations

import torch

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.methods.acknowledged import (
    acknowledged_after,
    counted,
    kept,
    none_acknowledged,
    total_weight,
)
from federatedscope_ggeur.methods.base import LocalContext, LocalHooks, weighted_mean
from federatedscope_ggeur.methods.fedavg import FedAvg
from federatedscope_ggeur.methods.tensors import TensorSpec
from federatedscope_ggeur.models import num_parameters


class Scaffold(FedAvg):
    """Each client corrects its gradient by ``c - c_k`` (option II of the paper).

    After tau steps of rate eta, ``c_k' = c_k - c + (w_g - w_k) / (eta tau_m)`` with
    ``tau_m = (tau - m (1 - m^tau) / (1 - m)) / (1 - m)``, the steps that momentum m
    makes of tau. The server keeps c, the mean of all c_k weighted as in averages.

    Parameters
    ----------
    server_lr : float
        eta_g: ``w_g += eta_g sum p_k (w_k - w_g)``.
    """

    name = "scaffold"
    keeps_state = True

    def __init__(self, server_lr: float = 1.0):
        self.server_lr = server_lr

    def upload_shapes(self, model):
        return {"c": TensorSpec((num_parameters(model),))}

    def initial_state(self, params, context):
        state = {
            "c": torch.zeros_like(params),
            "acknowledged_rounds": none_acknowledged(),
        }
        return {**state, "weight": total_weight(context)}

    def download(self, state):
        return {"c": state["c"], "acknowledged_rounds": state["acknowledged_rounds"]}

    def local(self, context: LocalContext) -> LocalHooks:
        momentum = _plain_momentum(context.optimizer)
        start, c = context.broadcast, context.download["c"]
        own = counted(context, torch.zeros_like(c))
        correction = c - own

        def add_correction(params, gradient):
            gradient.add_(correction)

        def finish(outcome):
            if outcome.steps == 0:
                return {"c": torch.zeros_like(own)}, kept(context, own, own)
            steps = _momentum_steps(outcome.steps, momentum)
            moved = (start - outcome.params) / (context.optimizer.lr * steps)
            return {"c": moved - c}, kept(context, own, moved - correction)

        return LocalHooks(add_correction=add_correction, finish=finish)

    def step(self, params, updates, state, context):
        weight = total_weight(context)
        # A client that joined late takes its share of the mean from then on.
        c = state["c"] * float(state["weight"] / weight)
        c = c + sum(
            u.aggregation_weight / float(weight) * u.upload["c"] for u in updates
        )
        moved = weighted_mean(params, updates) - params
        acknowledged_rounds = acknowledged_after(
            state["acknowledged_rounds"], updates, context.round_number
        )
        state = {"c": c, "acknowledged_rounds": acknowledged_rounds, "weight": weight}
        return params + self.server_lr * moved, state


def _momentum_steps(steps: int, m: float) -> float:
    """How many plain steps `steps` of heavy-ball momentum from rest amount to."""
    return (steps - m * (1 - m**steps) / (1 - m)) / (1 - m)


def _plain_momentum(optimizer) -> float:
    """The momentum m of an optimiser whose steps can be counted so."""
    momentum = optimizer.options.get("momentum", 0.0)
    refused = [
        name
        for name in ("nesterov", "dampening", "maximize")
        if optimizer.options.get(name)
    ]
    if optimizer.type != "SGD" or refused or momentum >= 1 or optimizer.lr <= 0:
        raise ConfigError(
            "ggeur.base_method scaffold needs train.optimizer.type SGD with a rate "
            "above 0 and momentum below 1, without nesterov, dampening and maximize; "
            f"got {optimizer}"
        )
    return momentum
