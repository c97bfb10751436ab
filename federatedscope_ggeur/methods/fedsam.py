"""FedSAM (Qu et al., 2022): seek flat minima."""

from __future__ import annotations

import torch
from torch import Tensor

from federatedscope_ggeur.settings import Key, not_negative

from .base import LocalContext, LocalHooks, Method
from .registry import register_method


@register_method("fedsam")
class FedSAM(Method):
    """Steps by the gradient at ``w + e``, about the worst point near the weights w.

    ``e = rho g / |g|``, where g is the gradient at w. Momentum, weight decay and
    clipping act on the second gradient, at w. Both gradients are of the same batch with
    the same dropout. The second one does not change BatchNorm's running statistics.

    With `rho` 0 the method is FedAvg, to the bit. A step computes two gradients.
    """

    meaning = "steps by the gradient at the worst point near the weights"
    source = "Qu 2022"
    SETTINGS = (
        Key(
            "rho",
            0.05,
            "Distance from the weights to the point at which the gradient is taken.",
            not_negative,
        ),
    )
    lower_if_diverging = ("rho",)
    batched = True

    rho: float

    @classmethod
    def setting_notes(cls, settings):
        if not settings["rho"]:
            yield "rho", "is 0, which makes it the same as fedavg"

    def local(self, context: LocalContext) -> LocalHooks:
        if not self.rho:
            return LocalHooks()

        def perturb(params: Tensor, gradient: Tensor) -> Tensor:
            if gradient.ndim == 1:
                length = gradient.norm()
            else:  # each row is the gradient of one client
                length = gradient.norm(dim=1, keepdim=True)
            # So a gradient of 0 stays 0.
            least = torch.finfo(length.dtype).tiny
            return gradient * (self.rho / length.clamp(min=least))

        return LocalHooks(perturb=perturb)
