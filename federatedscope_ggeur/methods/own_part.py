"""Some weights stay on each client and are not averaged."""

from __future__ import annotations

from torch import Tensor

from .contexts import LocalContext, LocalHooks


def keeping(context: LocalContext, own: Tensor) -> LocalHooks:
    """Hooks that start training from `with_own` and store the client's own weights.

    `own` [P + Q], bool, marks the weights that the client stores in its state.
    """

    def finish(outcome):
        return {}, {"own": outcome.weights[own.to(outcome.weights.device)]}

    return LocalHooks(start=with_own(context, own), finish=finish)


def with_own(context: LocalContext, own: Tensor) -> Tensor:
    """The broadcast weights [P + Q], with the client's own values where `own` is true.

    Before the client's first round these are the broadcast weights alone.
    """
    if "own" not in context.state:
        return context.weights
    weights = context.weights.clone()
    weights[own.to(weights.device)] = context.state["own"]
    return weights
