"""Keep clients' states in step with the server's, even if an update is lost.

A client that has trained does not know whether the server received its update. Suppose
that it always went on with its new state. Then one lost update would keep the clients'
states and the server's apart for ever, and the method would converge to a wrong point.
So a client stores its tensor from before and from after a round. The server tells each
client the last round whose update it received.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.printable import get_logger

from .base import LocalContext, ServerContext, Tensors, Update

logger = get_logger(__name__)


def first_state(context: ServerContext, **mean: Tensor) -> Tensors:
    """Server: the state before round 1, with the named tensor `mean`."""
    none = torch.zeros(0, dtype=torch.int64)
    return {**mean, "acknowledged_rounds": none, "weight": _total_weight(context)}


def next_state(
    name: str,
    change: Callable[[Update], Tensor],
    updates: Sequence[Update],
    state: Tensors,
    context: ServerContext,
    scale: float = 1.0,
) -> Tensors:
    """Server: the state after a round that takes `updates`.

    The tensor `name` is a mean over all clients. The function adds `scale` times the
    weighted `change` of each update to it.
    """
    weight, rounds = _total_weight(context), state["acknowledged_rounds"]
    changes = sum(u.aggregation_weight / float(weight) * change(u) for u in updates)
    # A client that joins late counts in the mean from then on.
    mean = state[name] * float(state["weight"] / weight) + scale * changes
    clients = [update.client for update in updates]
    after = rounds.new_zeros(max([len(rounds), *(client + 1 for client in clients)]))
    after[: len(rounds)] = rounds
    after[clients] = context.round_number
    return {name: mean, "acknowledged_rounds": after, "weight": weight}


def _total_weight(context: ServerContext) -> Tensor:
    """The sum of n_k over all clients that have finished round 0."""
    return torch.tensor(
        [sum(context.aggregation_weights.values())], dtype=torch.float64
    )


def kept(context: LocalContext, before: Tensor, after: Tensor) -> Tensors:
    """Client: the state after a round that changed the tensor `before` to `after`."""
    number = torch.tensor([context.round_number])
    return {"before": before, "after": after, "round": number}


def counted(context: LocalContext, default: Tensor) -> Tensor:
    """Client: the tensor of the last update that the server received.

    Before the first round it is `default`.
    """
    acknowledged_rounds = context.download["acknowledged_rounds"]
    taken = (
        int(acknowledged_rounds[context.client])
        if context.client < len(acknowledged_rounds)
        else 0
    )
    if not context.state:
        if taken:
            restore, save = setting("restore_from"), setting("save_to")
            logger.warning(
                "client %d has lost its state of round %d, but the server counts that "
                "state. The method will converge to a wrong point. Stop this client, "
                "and start it again with %s FILE. Its state is in "
                "FILE.clients/client_%04d.safetensors: FILE is private/checkpoint in "
                "the folder of its earlier run, or what %s named there",
                context.client,
                taken,
                restore,
                context.client,
                save,
            )
        return default
    return context.state["after" if taken >= context.state["round"] else "before"]
