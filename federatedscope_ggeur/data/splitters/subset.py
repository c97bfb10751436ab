"""Splitter ``subset``: each client has one main class and a little of the others."""

from __future__ import annotations

import numpy as np

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.settings import Key, positive_share

from .base import Holders, Task, register_splitter

_SHARE = Key(
    "share",
    0.95,
    "Share of a class's rows for the clients whose main class it is. The other clients "
    "get the rest, evenly.",
    positive_share,
)


@register_splitter("subset", [_SHARE])
def subset(task: Task, share: float) -> Holders:
    """Each client gets most rows of one main class, and a few rows of each other class.

    The share `share` of a class goes to the clients that have it as main class. The
    other rows of the class go evenly to the other clients. If classes have equal size,
    the main class is `share` of each client's rows, up to one row. The domain's clients
    take the classes in turn, so their number must be a multiple of the number of
    classes. One client for each class is the "subset" setting of FedPG.

    Raises
    ------
    ConfigError
        The number of clients is no multiple of the number of classes.
    """
    labels, m = task.labels, len(task.members)
    present = np.unique(labels)
    if m % max(len(present), 1):
        raise ConfigError(
            f"data.splitter: for subset the number of clients of domain "
            f"'{task.domain}' must be a multiple of its {len(present)} classes, but "
            f"is {m}. Change federate.client_num."
        )
    order = task.generator("subset").permutation(len(labels))
    holders = np.full(len(labels), -1)
    for position, c in enumerate(present):
        rows = order[labels[order] == c]
        main, others = _ring(position, len(present), m)
        kept = int(share * len(rows) + 0.5) if len(others) else len(rows)
        holders[rows[:kept]] = np.resize(main, kept)
        holders[rows[kept:]] = np.resize(others, len(rows) - kept)
    return Holders(holders)


def _ring(position: int, classes: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """The clients whose main class is at `position`, and all other clients in an order.

    For each class, the order of the others begins with another client. So no client
    always gets the rows that are left after an even division.
    """
    rounds = np.arange(m // classes)
    steps = np.arange(1, classes)[:, None]
    lanes = classes * ((position + rounds) % len(rounds))
    others = (position + steps) % classes + lanes
    return position + classes * rounds, others.reshape(-1)
