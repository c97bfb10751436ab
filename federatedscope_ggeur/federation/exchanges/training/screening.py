"""Finds updates that are far longer than those of all other clients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from federatedscope_ggeur.federation.screening import Findings, beyond
from federatedscope_ggeur.models import stacks

from .messages import ClientUpdate

#: The largest usual ratio of an update's length to the others', or to the length of its
#: starting weights. Near the end of training most updates are short, and honest ones
#: vary.
UPDATE = 10.0


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
    found = beyond(lengths, UPDATE, "the length of its update")
    return {k: reason for k, reason in found.items() if lengths[k] > start}


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
        found = torch.linalg.vector_norm(some - start, dim=1, dtype=dtype)
        lengths += found.tolist()
    return lengths
