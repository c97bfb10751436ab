"""MOON (Li et al., 2021): keep representations close to the global model's."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from federatedscope_ggeur.settings import Key, not_negative, positive

from .base import BatchedHooks, LocalContext, LocalHooks, Method
from .contexts import LocalOutcome
from .registry import register_method


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
        if "params" not in context.state:
            return LocalHooks(finish=_keep_weights)
        anchor = context.model.at(context.weights)
        previous = context.model.at(context.state["params"])

        def loss_term(model, batch):
            frozen = [one.represent(batch.features) for one in (anchor, previous)]
            return self.mu * batch.mean(self._losses(batch.representation, *frozen))

        return LocalHooks(loss_term=loss_term, finish=_keep_weights)

    def local_batched(self, contexts):
        finish = [_keep_weights] * len(contexts)
        shared = contexts[0].weights[None]
        held = [context.state.get("params") for context in contexts]
        if all(weights is None for weights in held):
            return BatchedHooks(finish=finish)
        previous = torch.stack([shared[0] if one is None else one for one in held])
        strength = previous.new_tensor([0 if one is None else self.mu for one in held])

        def loss_term(heads, batch):
            clients, features = len(batch.labels), batch.features
            anchor = heads.represent(shared, features)
            before = heads.represent(previous[:clients], features)
            losses = self._losses(batch.representation, anchor, before)
            return strength[:clients] * batch.mean(losses)

        return BatchedHooks(loss_term=loss_term, finish=finish)

    def _losses(self, own: Tensor, anchor: Tensor, previous: Tensor) -> Tensor:
        """The contrastive loss of each row, for representations [..., B, D']."""
        cosines = [F.cosine_similarity(own, one, dim=-1) for one in (anchor, previous)]
        pairs = torch.stack(cosines, dim=-1) / self.temperature
        return -pairs.log_softmax(dim=-1)[..., 0]


def _keep_weights(outcome: LocalOutcome):
    return {}, {"params": outcome.weights}
