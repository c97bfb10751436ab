"""Splits client numbers into windows, and draws clients for a round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

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
    return sorted(numbers[i] for i in drawn)
