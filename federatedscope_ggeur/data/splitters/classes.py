"""Splitter ``classes``: each client has only a few classes, in equal parts."""

from __future__ import annotations

import numpy as np

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.settings import Key, whole

from .base import Task, register_splitter

_PER_CLIENT = Key(
    "per_client",
    2.0,
    "Number of classes of each client. The number of clients times this must be a "
    "multiple of the domain's classes.",
    whole(1),
)


@register_splitter("classes", [_PER_CLIENT])
def classes(task: Task, per_client: int) -> np.ndarray:
    """Each client gets equal parts of `per_client` classes.

    There are m clients with r classes each, and C classes in the domain's rows. Each
    class is cut into m r / C equal parts. The parts are dealt at random, so that the
    classes of a client differ. Ten clients with two of ten classes are the 2-class
    setting of FedPG.

    Raises
    ------
    ConfigError
        m r is no multiple of C, r is above C, or a class has too few rows.
    """
    m = len(task.members)
    present, counts = np.unique(task.labels, return_counts=True)
    where = f"domain '{task.domain}', {m} client(s) and {len(present)} classes"
    if per_client > len(present):
        raise ConfigError(
            f"data.splitter_args: per_client {per_client} is more than the number of "
            f"classes ({where}). Lower it."
        )
    parts, left = divmod(m * per_client, max(len(present), 1))
    if left or not parts:
        raise ConfigError(
            f"data.splitter: 'classes' does not fit {where}: clients times per_client, "
            f"{m} x {per_client} = {m * per_client}, must be a multiple of "
            f"{len(present)}, the number of classes. Change "
            "federate.client_num or per_client in data.splitter_args."
        )
    if counts.min() < parts:
        raise ConfigError(
            f"data.splitter: classes cuts every class into {parts} parts ({where}), "
            f"but class {present[counts.argmin()]} has only {counts.min()} row(s). "
            "Set fewer clients or a smaller per_client in data.splitter_args."
        )
    shares = np.zeros((m, task.num_classes))
    hands = _deal(m, per_client, len(present), task.generator("classes"))
    for member, hand in enumerate(hands):
        shares[member, present[hand]] = 1 / parts
    return shares


def _deal(
    hands: int, size: int, kinds: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Choose `size` different kinds for each hand, and each kind equally often.

    Hands get their kinds one after the other. The chance of a kind is its share of the
    remaining places. A kind that must go into all remaining hands goes into each of
    them. So the drawing never has to start again.
    """
    left = np.full(kinds, hands * size // kinds)
    dealt = []
    for waiting in range(hands, 0, -1):
        due = np.flatnonzero(left == waiting)
        free = np.flatnonzero((left > 0) & (left < waiting))
        drawn = free[:0]
        if len(due) < size:
            chances = left[free] / left[free].sum()
            drawn = rng.choice(free, size - len(due), replace=False, p=chances)
        hand = np.sort(np.concatenate([due, drawn]))
        left[hand] -= 1
        dealt.append(hand)
    # The last hands had the least choice. Shuffling keeps any client from being last.
    return [dealt[k] for k in rng.permutation(hands)]
