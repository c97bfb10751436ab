"""FedNTD (Lee et al., 2022): keep the global model's scores of wrong classes."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from federatedscope_ggeur.methods.base import LocalContext, LocalHooks, Method
from federatedscope_ggeur.methods.registry import register_method
from federatedscope_ggeur.settings import Key, not_negative, positive


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
        anchor, t = context.model.at(context.weights), self.temperature

        def loss_term(model, batch):
            divergence = F.kl_div(
                _log_softmax_of_others(batch.logits / t, batch.labels),
                _log_softmax_of_others(anchor(batch.features) / t, batch.labels),
                reduction="batchmean",
                log_target=True,
            )
            return self.beta * t**2 * divergence

        return LocalHooks(loss_term=loss_term)


def _log_softmax_of_others(logits: Tensor, labels: Tensor) -> Tensor:
    """The log softmax of logits [B, C] without each row's true class: [B, C - 1]."""
    true = F.one_hot(labels, logits.shape[1]).bool()
    return logits[~true].view(len(labels), -1).log_softmax(dim=1)
