"""Client states that stay in step with the server's when an update is lost.

A client that has trained does not know whether its update arrived in time and was
taken. If it went on from its new state although the server never counted it, the sum of
the clients' states would differ from the server's for ever, and with it the point that
the method converges to. So a client keeps its tensor from before and after a round, and
the server sends down, for each client, the last round whose update it took.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from federatedscope_ggeur.methods.base import (
    LocalContext,
    ServerContext,
    Tensors,
    Update,
)

logger = logging.getLogger(__name__)


def none_acknowledged() -> Tensor:
    """Before round 1: no update of anybody was taken."""
    return torch.zeros(0, dtype=torch.int64)


def acknowledged_after(
    acknowledged_rounds: Tensor, updates: Sequence[Update], round_number: int
) -> Tensor:
    """Server: the last round taken of each client, by number, after this round."""
    size = (
        max([len(acknowledged_rounds) - 1, *(update.client for update in updates)]) + 1
    )
    after = acknowledged_rounds.new_zeros(size)
    after[: len(acknowledged_rounds)] = acknowledged_rounds
    after[[update.client for update in updates]] = round_number
    return after


def total_weight(context: ServerContext) -> Tensor:
    """Server: the sum of n_k over all clients that have ended round 0."""
    return torch.tensor(
        [sum(context.aggregation_weights.values())], dtype=torch.float64
    )


def kept(context: LocalContext, before: Tensor, after: Tensor) -> Tensors:
    """Client: the state to keep of a tensor that this round changed."""
    number = torch.tensor([context.round_number])
    return {"before": before, "after": after, "round": number}


def counted(context: LocalContext, default: Tensor) -> Tensor:
    """Client: the tensor as the server counts it; `default` before the first round."""
    acknowledged_rounds = context.download["acknowledged_rounds"]
    taken = (
        int(acknowledged_rounds[context.client])
        if context.client < len(acknowledged_rounds)
        else 0
    )
    if not context.state:
        if taken:
            logger.warning(
                "client %d has lost what it kept of round %d, and the server counts on "
                "it: the method will not converge to where it should; start clients "
                "again with federate.restore_from",
                context.client,
                taken,
            )
        return default
    return context.state["after" if taken >= context.state["round"] else "before"]
