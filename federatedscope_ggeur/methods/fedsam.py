"""FedSAM and FedASAM (Qu et al., Caldarola et al., 2022): seek flat minima."""

from __future__ import annotations

import torch
from torch import Tensor

from federatedscope_ggeur.models import Model
from federatedscope_ggeur.settings import Key, not_negative, one_of

from .base import LocalContext, LocalHooks, Method
from .registry import register_method


@register_method("fedsam")
class FedSAM(Method):
    """Steps by the gradient at ``w + e``, about the worst point near the weights w.

    ``e = rho g / |g|``, where g is the gradient at w. With `adaptive` (ASAM), ``e = rho
    T^2 g / |T g|``. T is |w| + eta for the numbers of tensors called ``weight``, and 1
    for others. Momentum, weight decay and clipping act on the second gradient, at w.
    Both gradients are of the same batch with the same dropout. The second one does not
    change BatchNorm's running statistics.

    With `rho` 0 the method is FedAvg, to the bit. A step computes two gradients.
    """

    meaning = "steps by the gradient at the worst point near the weights"
    source = "Qu 2022; ASAM: Caldarola 2022"
    SETTINGS = (
        Key(
            "rho",
            0.05,
            "Distance from the weights to the point at which the gradient is taken.",
            not_negative,
        ),
        Key("eta", 0.2, "With adaptive: number that is added to |w|.", not_negative),
        Key(
            "adaptive",
            False,
            "Measure the distance relative to the weights (ASAM).",
            one_of(True, False),
        ),
    )
    lower_if_diverging = ("rho",)
    batched = True

    rho: float
    eta: float
    adaptive: bool

    @classmethod
    def setting_notes(cls, settings):
        if not settings["rho"]:
            yield "rho", "is 0, which makes it the same as fedavg"

    def local(self, context: LocalContext) -> LocalHooks:
        if not self.rho:
            return LocalHooks()
        scaled = None
        if self.adaptive:
            scaled = _of_weights(context.model).to(context.broadcast.device)

        def perturb(params: Tensor, gradient: Tensor) -> Tensor:
            if scaled is None:
                return _of_length(gradient, _norm(gradient), self.rho)
            sizes = torch.where(
                scaled, params.abs() + self.eta, torch.ones_like(params)
            )
            squared = sizes * sizes * gradient
            return _of_length(squared, _norm(sizes * gradient), self.rho)

        return LocalHooks(perturb=perturb)


def _norm(vector: Tensor) -> Tensor:
    """The length of a vector [P]; of each row of vectors [A, P], as [A, 1]."""
    return vector.norm() if vector.ndim == 1 else vector.norm(dim=1, keepdim=True)


def _of_length(direction: Tensor, length: Tensor, rho: float) -> Tensor:
    """Scale `direction` to the length rho: ``rho direction / length``.

    If the gradient is 0, the result is 0.
    """
    return direction * (rho / length.clamp(min=torch.finfo(length.dtype).tiny))


def _of_weights(model: Model) -> Tensor:
    """Which of the P parameters are in tensors called ``weight``: bool [P]."""
    return torch.cat(
        [
            torch.full((p.numel(),), name.rpartition(".")[2] == "weight")
            for name, p in model.named_parameters()
        ]
    )
