"""Which clients: in groups, drawn for a round, or left out of training."""

from __future__ import annotations

from collections.abc import Sequence

from federatedscope_ggeur.rng import numpy_generator


def windows(numbers: Sequence[int], size: int) -> list[list[int]]:
    """`numbers` in groups of `size`, in order."""
    return [list(numbers[i : i + size]) for i in range(0, len(numbers), size)]


def draw_clients(numbers: Sequence[int], wanted: int, seed: int, *key) -> list[int]:
    """`wanted` of `numbers`, ascending, by seed and `key`; all if there are fewer."""
    if wanted >= len(numbers):
        return list(numbers)
    drawn = numpy_generator(seed, *key).choice(numbers, wanted, replace=False)
    return sorted(drawn.tolist())
