"""FedOpt (Reddi et al., 2021): an optimiser on the server."""

from __future__ import annotations

import torch

from federatedscope_ggeur.settings import Key, below, not_negative, one_of, positive

from .base import Method, weighted_mean
from .registry import register_method

#: The options that each type of optimiser takes besides its rate.
_OPTIONS = {
    "SGD": ("momentum",),
    "Adam": ("betas", "eps"),
    "Yogi": ("betas", "eps"),
    "Adagrad": ("betas", "eps"),
}


def _betas(value) -> str:
    is_pair = isinstance(value, (list, tuple)) and len(value) == 2
    if is_pair and not any(map(below(1.0), value)):
        return ""
    return f"must be two numbers from 0 to below 1, got {value!r}"


@register_method("fedopt")
class FedOpt(Method):
    """A server optimiser, whose gradient is the mean update ``d = sum p_k w_k - w_g``.

    SGD: ``w_g += lr d``. The adaptive types keep ``u = b1 u + (1 - b1) d`` and

    - Adam: ``v = b2 v + (1 - b2) d^2``
    - Yogi: ``v = v - (1 - b2) d^2 sign(v - d^2)``
    - Adagrad: ``v = v + d^2``

    with ``v_0 = eps^2``. Then ``w_g += lr u / (sqrt(v) + eps)``. This is Algorithm 2 of
    the paper. There is no bias correction: with that of `torch.optim`, the first round
    would move every weight by lr. SGD with momentum uses ``v = momentum v + d`` in
    place of d.
    """

    meaning = "an optimiser on the server"
    source = "Reddi 2021"
    SECTION = "fedopt.optimizer"
    SETTINGS = (
        Key("type", "SGD", "The server's optimizer.", one_of(*_OPTIONS)),
        Key("lr", 0.01, "Learning rate of the server's optimizer.", not_negative),
        Key("momentum", None, "Momentum of SGD; 0.0 if not set.", below(1.0)),
        Key(
            "betas",
            None,
            "Betas of the other optimizers; [0.9, 0.99] if not set.",
            _betas,
        ),
        Key(
            "eps", None, "Epsilon of the other optimizers; 0.001 if not set.", positive
        ),
    )
    lower_if_diverging = ("lr",)

    type: str
    lr: float
    momentum: float = 0.0
    betas: tuple[float, float] = (0.9, 0.99)
    eps: float = 1e-3

    @classmethod
    def setting_problems(cls, settings):
        kind = settings["type"]
        known = ("type", "lr", *_OPTIONS.get(kind, settings))
        takes = f"takes no such argument; it takes {', '.join(known)}"
        unknown = [name for name in settings if name not in known]
        return [(name, f"the server's {kind} {takes}") for name in unknown]

    def initial_state(self, params, context):
        if self.type == "SGD":
            return {"v": torch.zeros_like(params)}
        v = torch.full_like(params, self.eps**2)
        return {"u": torch.zeros_like(params), "v": v}

    def step(self, params, updates, state, context):
        if not any(update.aggregation_weight for update in updates):
            return params, state  # only clients without data were drawn
        d = weighted_mean(params, updates) - params
        if self.type == "SGD":
            v = self.momentum * state["v"] + d
            return params + self.lr * v, {"v": v}
        b1, b2 = self.betas
        u = b1 * state["u"] + (1 - b1) * d
        v, square = state["v"], d * d
        if self.type == "Adam":
            v = b2 * v + (1 - b2) * square
        elif self.type == "Yogi":
            v = v - (1 - b2) * square * torch.sign(v - square)
        else:
            v = v + square
        return params + self.lr * u / (v.sqrt() + self.eps), {"u": u, "v": v}
