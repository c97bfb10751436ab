"""Splits client numbers into windows, and draws clients for a round.

Each client's share of an average, and limits on shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.rng import numpy_generator


class _OfClient(Protocol):
    @property
    def client(self) -> int: ...


FromClient = TypeVar("FromClient", bound=_OfClient)


def windows(numbers: Sequence[int], size: int) -> list[list[int]]:
    """Split `numbers` into groups of `size`, in order."""
    return [list(numbers[i : i + size]) for i in range(0, len(numbers), size)]


def in_client_order(messages: Iterable[FromClient]) -> list[FromClient]:
    """Sort `messages` by the number of their client."""
    return sorted(messages, key=lambda message: message.client)


def draw_clients(numbers: Sequence[int], wanted: int, seed: int, *key) -> list[int]:
    """Draw `wanted` of `numbers` by seed and `key`, or all if there are fewer.

    The result is ascending.
    """
    if wanted >= len(numbers):
        return list(numbers)
    drawn = numpy_generator(seed, *key).choice(len(numbers), wanted, replace=False)
    return sorted(numbers[i] for i in drawn.tolist())


logger = get_logger(__name__)


def shares(weights: Mapping[int, float]) -> dict[int, float]:
    """Each client's share of an average by `weights`; 0 if all weights are 0."""
    total = sum(weights.values())
    return {k: weight / total if total else 0.0 for k, weight in weights.items()}


def capped(weights: Mapping[int, float], most: float) -> dict[int, float]:
    """Cut the largest weights to one value, so that no share exceeds `most`.

    If there are too few clients for such shares, all weights become equal. With t for
    the common value and m clients cut to it, ``t = most (m t + rest)``.
    """
    order = sorted((w for w in weights.values() if w > 0), reverse=True)
    if most >= 1 or not order or order[0] <= most * sum(order):
        return dict(weights)
    for cut in range(1, len(order)):
        if cut * most >= 1:
            break
        limit = most * sum(order[cut:]) / (1 - cut * most)
        if order[cut] <= limit:
            return {k: min(w, limit) for k, w in weights.items()}
    return {k: float(w > 0) for k, w in weights.items()}


def log_largest_share(
    weights: Mapping[int, float], ignore_weight: bool, most: float
) -> None:
    """Log which client has the largest share of an average over all clients.

    Nothing is logged if all shares are equal.
    """
    if ignore_weight:
        weights = {k: float(w > 0) for k, w in weights.items()}
    parts = shares(capped(weights, most))
    if len(set(parts.values())) > 1:
        client = max(parts, key=lambda k: parts[k])
        logger.info(
            "client %d has the largest share of an average over all clients: %.1f%%",
            client,
            100 * parts[client],
        )
