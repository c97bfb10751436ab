"""Finds updates that are far longer than those of all other clients.

Detects that training diverges while all numbers are still finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.federation.screening import Findings, beyond
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.models import stacks
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting import Divergence, divergence_line
from federatedscope_ggeur.reporting.json_values import as_json_value, from_json_value

from .messages import LARGEST_WEIGHT, ClientUpdate

#: The largest usual ratio of an update's length to the others', or to the length of its
#: starting weights. Near the end of training most updates are short, and honest ones
#: vary.
UPDATE = 10.0


def largest(values: Tensor) -> float:
    """The largest absolute value; 0 if there are no values, NaN if one is NaN."""
    if not values.numel():
        return 0.0
    least, most = values.aminmax()
    return max(-float(least), float(most))


def is_finite(values: Tensor) -> bool:
    """Whether all values are finite.

    This takes one pass over the values. `torch.isfinite` takes several.
    """
    return not values.is_floating_point() or math.isfinite(largest(values))


def update_findings(
    updates: Sequence[ClientUpdate],
    params: Tensor,
    trained: Callable[[Tensor], Tensor] = lambda params: params,
) -> Findings:
    """Compare the lengths of a round's updates.

    Parameters
    ----------
    updates : sequence of ClientUpdate
    params : Tensor of shape (P + Q,)
        The weights that the server sent to clients.
    trained : callable
        Returns the trained part of weights.
    """
    size = len(params)
    params = trained(params)
    whole = [u for u in updates if size and u.params.shape[0] == size]
    vectors = [trained(u.params) for u in whole]
    if _are_alike(_lengths(vectors, params, torch.float32)):
        return {}
    lengths = dict(zip([u.client for u in whole], _lengths(vectors, params)))
    (start,) = _lengths([params], torch.zeros(()))
    findings = beyond(lengths, UPDATE, "the length of its update")
    return {k: reason for k, reason in findings.items() if lengths[k] > start}


def _are_alike(lengths: list[float]) -> bool:
    """Whether no length is near the limit, with all that float32 may be wrong."""
    order = sorted(lengths)
    if not order:
        return True
    most, usual = order[-1], order[(len(order) - 1) // 2]
    return math.isfinite(most) and most <= UPDATE / 2 * usual


def _lengths(
    vectors: Sequence[Tensor], start: Tensor, dtype: torch.dtype = torch.float64
) -> list[float]:
    """The distance of each of `vectors` from `start`.

    In float64 no length overflows. It takes several times as long as float32.
    """
    lengths: list[float] = []
    for some in stacks(vectors):
        norms = torch.linalg.vector_norm(some - start, dim=1, dtype=dtype)
        lengths += norms.tolist()
    return lengths


logger = get_logger(__name__)

#: The largest allowed ratio of the loss to the loss of the first round.
GROWTH = 10.0
#: The largest allowed ratio of loss and weights to those of the start.
BOUND = 1000.0


def remedy(method: Method, rate: float | None = None) -> str:
    """Advice on which settings to change if training by `method` diverges."""
    now = "" if rate is None else f" (now {rate})"
    own = [setting(name) for name in method.settings_to_lower()]
    lower = " or ".join([f"{setting('optimizer.lr')}{now}", *own])
    advice = f"lower {lower}{',' if own else ''} or set {setting('grad_clip')}"
    plugins = " and ".join(method.of_plugins())
    if plugins:
        advice += f"; or look for the cause in the plugin's method {plugins}"
    return advice


def overflow_of(updates: Sequence[ClientUpdate]) -> str:
    """A text that names the client with outsized weights; "" if there is none."""
    sizes = sorted((largest(u.params), u.client) for u in updates)
    usual = sizes[(len(sizes) - 1) // 2][0] if sizes else 0.0
    if not sizes or sizes[-1][0] <= BOUND * max(usual, 1.0):
        return ""
    return f"client {sizes[-1][1]} sent weights of up to {sizes[-1][0]:.3g}; "


def not_finite(
    params: Tensor, own: Mapping[str, Tensor], most: float | None = None
) -> str:
    """A text that names weights [P] or tensors that are not finite; "" if all are.

    `own` are the method's tensors. Weights so large that sums over clients may overflow
    are named, too. `most` is the largest absolute weight, if it is known.
    """
    most = largest(params) if most is None else most
    if not math.isfinite(most):
        return "the weights contain NaN or infinity"
    if most > LARGEST_WEIGHT:
        return f"the weights are larger than {LARGEST_WEIGHT:g}"
    for name, tensor in own.items():
        if not is_finite(tensor):
            return f"'{name}' contains NaN or infinity"
    return ""


class DivergenceWatch:
    """Watches every evaluated round of a run for divergence.

    Parameters
    ----------
    num_classes : int
    method : Method
    rate : float or None
        The clients' learning rate.

    Attributes
    ----------
    signs : Divergence or None
        The divergence that the last evaluated round showed, if any.

    Notes
    -----
    A model that beats guessing (loss ln C) has not diverged, even if its loss has
    grown: after a good start the first loss may be almost zero. For other models the
    loss is compared with that of the first round. Loss and weights are also compared
    with those of the start, for two reasons. A rate that is far too high does its harm
    in the first round. A one-shot head may start with large weights and a large loss.
    """

    def __init__(self, num_classes: int, method: Method, rate: float | None):
        self._guessing = math.log(num_classes)
        self._method, self._rate = method, rate
        self._start_loss, self._start_weight = self._guessing, 1.0
        self._first_loss: float | None = None
        self._warned = False
        self.signs: Divergence | None = None

    def begin(self, params: Tensor, loss: float | None = None) -> None:
        """Note the first weights [P], and their loss if it is known."""
        self._start_loss = max(self._guessing, loss or 0.0)
        self._start_weight = max(1.0, largest(params))

    def look(
        self,
        number: int,
        loss: float | None,
        params: Tensor,
        weights: Mapping[int, float],
        losses: Mapping[int, float],
    ) -> None:
        """Check the numbers of a round that was evaluated.

        Parameters
        ----------
        number : int
            The round.
        loss : float or None
            The mean loss over all rows; None without rows.
        params : Tensor of shape (P,)
            The global model's weights.
        weights : mapping from client number to float
            The largest weight that each client sent.
        losses : mapping from client number to float
            The mean loss of each scored client.
        """
        if self._first_loss is None:
            self._first_loss = loss
        # If weights stay with clients there is no global model.
        own = largest(params) if self._method.federated else 0.0
        if not self._is_astray(loss, max([own, *weights.values()])):
            self.signs = None
        elif self.signs is None:
            self.signs = self._finding(number, loss, own, weights, losses)
            if not self._warned:
                line = divergence_line(self.signs)
                logger.warning("%s; %s", line, remedy(self._method))
            self._warned = True

    def _finding(
        self,
        number: int,
        loss: float | None,
        own: float,
        weights: Mapping[int, float],
        losses: Mapping[int, float],
    ) -> Divergence:
        federated = self._method.federated
        by_client = weights if federated else losses
        client = max(by_client, key=lambda k: by_client[k], default=None)
        # If it is far above all that clients sent, the server's step is the cause.
        if weights and own > GROWTH * max(weights.values()):
            client = None
        return Divergence(
            round=number,
            client=client,
            rate=self._rate,
            loss=loss,
            first_loss=self._first_loss,
            largest_weight=max([own, *weights.values()]) if federated else None,
        )

    def _is_astray(self, loss: float | None, weight: float) -> bool:
        beyond = weight > BOUND * self._start_weight
        if loss is None:
            return beyond
        first = self._first_loss
        grown = first is not None and loss > GROWTH * first
        too_large = loss > BOUND * self._start_loss
        return loss > self._guessing and (grown or too_large or beyond)

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, as plain values."""
        return {
            "start_loss": self._start_loss,
            "start_weight": self._start_weight,
            "first_loss": self._first_loss,
            "found": None if self.signs is None else as_json_value(self.signs, "found"),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore a `state`. Raises KeyError or DataError if it is invalid."""
        self._start_loss = from_json_value(float, state["start_loss"], "start_loss")
        self._start_weight = from_json_value(
            float, state["start_weight"], "start_weight"
        )
        first, signs = state["first_loss"], state["found"]
        self._first_loss = from_json_value(Optional[float], first, "first_loss")
        self.signs = from_json_value(Optional[Divergence], signs, "found")
