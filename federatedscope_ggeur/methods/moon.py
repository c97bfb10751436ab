"""MOON (Li et al., 2021): keep representations close to the global model's."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from federatedscope_ggeur.methods.base import LocalContext, LocalHooks, Method
from federatedscope_ggeur.methods.registry import register_method
from federatedscope_ggeur.settings import Key, not_negative, positive


@register_method("moon")
class Moon(Method):
    """FedAvg with a loss that keeps representations close to the global model's.

    The loss gets mu times the mean of ``-log(e^{s_g/t} / (e^{s_g/t} + e^{s_p/t}))``.

    s_g is the cosine between a row's representations by the current and the broadcast
    weights. s_p is the same with the client's own last weights, from before averaging.
    The representations by broadcast and last weights are constants. A client's first
    round has no term. With a linear head the representation is the logits.

    t is `temperature`. With `mu` 0 the method is FedAvg, to the bit.
    """

    meaning = (
        "pulls representations to those of the global model, and away from those of "
        "the client's last model"
    )
    source = "Li 2021"
    SETTINGS = (
        Key("mu", 1.0, "Weight of the contrastive loss.", not_negative),
        Key("temperature", 0.5, "Temperature of the cosine similarities.", positive),
    )
    keeps_state = True

    mu: float
    temperature: float

    def local(self, context: LocalContext) -> LocalHooks:
        def finish(outcome):
            return {}, {"params": outcome.weights}

        if "params" not in context.state:
            return LocalHooks(finish=finish)
        anchor = context.model.at(context.weights)
        previous = context.model.at(context.state["params"])

        def loss_term(model, batch):
            cosines = [
                F.cosine_similarity(
                    batch.representation, frozen.represent(batch.features)
                )
                for frozen in (anchor, previous)
            ]
            pairs = torch.stack(cosines, dim=1) / self.temperature
            return self.mu * F.cross_entropy(pairs, torch.zeros_like(batch.labels))

        return LocalHooks(loss_term=loss_term, finish=finish)
