"""SCAFFOLD (Karimireddy et al., 2020): control variates against client drift."""

from __future__ import annotations

import torch

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.models import num_trainable
from federatedscope_ggeur.settings import Key, below, positive

from .acknowledged import counted, first_state, kept, next_state
from .base import LocalContext, LocalHooks, Method, weighted_mean
from .contexts import LinearCorrection, TensorSpec
from .registry import register_method


@register_method("scaffold")
class Scaffold(Method):
    """Each client corrects its gradient by ``c - c_k`` (option II of the paper).

    After tau steps of rate eta, a client sets ``c_k' = c_k - c + (w_g - w_k) / (eta
    tau_m)``. With momentum m, tau steps move as far as ``tau_m = (tau - m (1 - m^tau) /
    (1 - m)) / (1 - m)`` plain steps. The server keeps c, the mean of all c_k, weighted
    as in averages. Then it sets ``w_g += server_lr sum p_k (w_k - w_g)``.
    """

    meaning = "corrects gradients by c - c_k (option II)"
    source = "Karimireddy 2020"
    sends = "P numbers: the change of c_k"
    sends_weights_alone = True
    receives = "c: P numbers; acknowledged rounds"
    SETTINGS = (
        Key(
            "server_lr",
            1.0,
            "The server's learning rate (the GGEUR paper: 0.25).",
            positive,
        ),
    )
    keeps_state = True
    batched = True
    lower_if_diverging = ("server_lr",)

    server_lr: float

    @classmethod
    def optimizer_problems(cls, optimizer):
        """Yield problems of optimisers whose steps `_momentum_steps` cannot count."""
        why = "with scaffold, which needs plain steps of SGD"
        if optimizer.type != "SGD":
            return [("type", f"must be SGD {why}; got {optimizer.type}")]
        problems = [
            (name, f"cannot be used {why}")
            for name in ("nesterov", "dampening", "maximize")
            if optimizer.options.get(name)
        ]
        if below(1.0)(optimizer.options.get("momentum", 0.0)):
            problems.append(("momentum", f"must be below 1 {why}"))
        if optimizer.lr <= 0:
            problems.append(("lr", f"must be above 0 {why}"))
        return problems

    def upload_shapes(self, model):
        return {"c": TensorSpec((num_trainable(model),))}

    def initial_state(self, params, context):
        return first_state(context, c=torch.zeros_like(params))

    def download(self, state):
        return {"c": state["c"], "acknowledged_rounds": state["acknowledged_rounds"]}

    def local(self, context: LocalContext) -> LocalHooks:
        for field, problem in self.optimizer_problems(context.optimizer):
            raise ConfigError(f"the local optimiser's {field} {problem}")
        momentum = context.optimizer.options.get("momentum", 0.0)
        start, c = context.broadcast, context.download["c"]
        own = counted(context, torch.zeros_like(c))
        correction = c - own

        def finish(outcome):
            if outcome.steps == 0:
                return {"c": torch.zeros_like(own)}, kept(context, own, own)
            steps = _momentum_steps(outcome.steps, momentum)
            moved = (start - outcome.params) / (context.optimizer.lr * steps)
            return {"c": moved - c}, kept(context, own, moved - correction)

        return LocalHooks(add_correction=LinearCorrection(correction), finish=finish)

    def step(self, params, updates, state, context):
        moved = weighted_mean(params, updates) - params
        state = next_state("c", lambda u: u.upload["c"], updates, state, context)
        return params + self.server_lr * moved, state


def _momentum_steps(steps: int, m: float) -> float:
    """The number of plain steps that move as far as `steps` steps with momentum m.

    Momentum starts at zero.
    """
    return (steps - m * (1 - m**steps) / (1 - m)) / (1 - m)
