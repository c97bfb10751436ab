"""FedProx (Li et al., 2020): clients stay near the global weights."""

from __future__ import annotations

from federatedscope_ggeur.settings import Key, not_negative

from .base import LocalContext, LocalHooks, Method
from .contexts import LinearCorrection
from .registry import register_method


@register_method("fedprox")
class FedProx(Method):
    """FedAvg with a loss that keeps the weights close to the broadcast weights.

    The local loss is ``CE + mu/2 |w - w_g|^2``, where w_g are the broadcast weights.

    w_g counts as a constant. With `mu` 0 the method is FedAvg, to the bit.
    """

    meaning = "adds mu/2 |w - w_g|^2 to the loss"
    source = "Li 2020"
    SECTION = "fedprox"
    SETTINGS = (Key("mu", 0.0, "Weight of the proximal term.", not_negative),)
    lower_if_diverging = ("mu",)
    batched = True

    mu: float

    @classmethod
    def setting_notes(cls, settings):
        return (
            ()
            if settings["mu"]
            else [("mu", "is 0, which makes it the same as fedavg")]
        )

    def local(self, context: LocalContext) -> LocalHooks:
        pull = LinearCorrection(-self.mu * context.broadcast, self.mu)
        return LocalHooks(add_correction=pull)
