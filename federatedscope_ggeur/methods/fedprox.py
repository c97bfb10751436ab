"""FedProx (Li et al., 2020): clients stay near the global weights."""

from __future__ import annotations

from federatedscope_ggeur.methods.base import LocalContext, LocalHooks
from federatedscope_ggeur.methods.fedavg import FedAvg


class FedProx(FedAvg):
    """Local loss ``CE + mu/2 |w - w_g|^2``, w_g the broadcast weights, constant.

    Parameters
    ----------
    mu : float
        0 is FedAvg, to the bit.
    """

    name = "fedprox"

    def __init__(self, mu: float):
        self.mu = mu

    def local(self, context: LocalContext) -> LocalHooks:
        constant = self.mu * context.broadcast

        def add_correction(params, gradient):
            gradient.add_(params, alpha=self.mu).sub_(constant)

        return LocalHooks(add_correction=add_correction)
