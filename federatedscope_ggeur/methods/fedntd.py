"""FedNTD (Lee et al., 2022): keep the global model's scores of wrong classes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from federatedscope_ggeur.settings import Key, not_negative, positive

from .base import BatchedHooks, LocalContext, LocalHooks, Method
from .registry import register_method


@register_method("fedntd")
class FedNTD(Method):
    """FedAvg with a loss that keeps the global model's scores of a row's wrong classes.

    The loss gets the term ``beta t^2 KL(softmax(l_g/t) || softmax(l/t))`` over all
    classes except the row's own.

    l are the logits. l_g are the logits of the broadcast weights, as constants. Both
    leave out the column of the row's true class. With two classes the term is zero. t
    is `temperature`. With `beta` 0 the method is FedAvg, to the bit.
    """

    meaning = "distils the global model's view of the not-true classes"
    source = "Lee 2022"
    SETTINGS = (
        Key("beta", 1.0, "Weight of the distillation loss.", not_negative),
        Key(
            "temperature",
            1.0,
            "Temperature of the softmax in the distillation loss.",
            positive,
        ),
    )

    beta: float
    temperature: float

    def local(self, context: LocalContext) -> LocalHooks:
        return LocalHooks(loss_term=self._loss_term(context.model.at(context.weights)))

    def local_batched(self, contexts):
        shared = contexts[0].weights[None]

        def loss_term(heads, batch):
            term = self._loss_term(lambda features: heads.logits(shared, features))
            return term(heads, batch)

        return BatchedHooks(loss_term=loss_term)

    def _loss_term(self, anchor: Callable[[Tensor], Tensor]):
        """The term for a batch of one client, or of several.

        `anchor` gives the logits of the broadcast weights for features.
        """
        t = self.temperature

        def loss_term(model, batch):
            divergences = F.kl_div(
                _log_softmax_of_others(batch.logits / t, batch.labels),
                _log_softmax_of_others(anchor(batch.features) / t, batch.labels),
                reduction="none",
                log_target=True,
            )
            return self.beta * t**2 * batch.mean(divergences.sum(dim=-1))

        return loss_term


def _log_softmax_of_others(logits: Tensor, labels: Tensor) -> Tensor:
    """The log softmax of logits [..., C] without the true class: [..., C - 1]."""
    others = torch.arange(logits.shape[-1] - 1, device=logits.device)
    others = others + (others >= labels[..., None])
    return logits.gather(-1, others).log_softmax(dim=-1)
