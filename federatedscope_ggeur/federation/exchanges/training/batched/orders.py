"""Which rows the steps of a group's clients take: the orders that `fit` draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.federation.training_settings import TrainingSettings
from federatedscope_ggeur.rng import torch_generator

#: Row numbers that are made at once, for all clients together.
_MOST = 1 << 22


class Segment(NamedTuple):
    """Some steps of the first A clients of a group.

    Attributes
    ----------
    rows : Tensor of shape (steps, A, B), int32
        The row numbers of each batch, padded with the client's first row.
    sizes : Tensor of shape (steps, A), int32
        The rows of each batch that count. A client that has taken all its steps has 0.
    """

    rows: Tensor
    sizes: Tensor


class Order:
    """The batches of one client, in the order in which `fit` takes them.

    Parameters
    ----------
    rows : int
        The number n of rows in the client's set.
    place : int
        The number of the first of them among the rows of all clients.
    settings : TrainingSettings
    seed : int
        The seed of `fit`.
    numbers : int array of shape [n], optional
        The numbers of the set's rows, if these are not the first n from `place` on.

    Attributes
    ----------
    left : int
        The mini-batches of the round that are still to come.
    """

    def __init__(
        self,
        rows: int,
        place: int,
        settings: TrainingSettings,
        seed: int,
        numbers: np.ndarray | None = None,
    ):
        self.left = settings.batches(rows)
        self._rows, self._place, self._numbers = rows, place, numbers
        self._usable, self._size = settings.usable(rows), settings.batch_size
        self._order = torch_generator(seed, "order") if settings.shuffle else None
        self._drawn = np.empty(0, np.int64)
        # A row of the client's own: no other client's rows come into its batches.
        self._padding = place if numbers is None or not rows else place + numbers[0]

    def fill(self, rows: np.ndarray, sizes: np.ndarray) -> None:
        """Write the next batches into `rows` [steps, B] and `sizes` [steps]."""
        first, end = 0, min(len(sizes), self.left)
        self.left -= end
        if end < len(rows):
            rows[end:] = self._padding
        while first < end:
            if not len(self._drawn):
                self._drawn = self._epoch()
            whole, rest = divmod(len(self._drawn), self._size)
            taken = min(whole, end - first)
            if not taken:
                rows[first, :rest] = self._drawn
                rows[first, rest:] = self._padding
                sizes[first], self._drawn = rest, self._drawn[:0]
                first += 1
                continue
            count = taken * self._size
            rows[first : first + taken].reshape(-1)[:] = self._drawn[:count]
            sizes[first : first + taken] = self._size
            self._drawn, first = self._drawn[count:], first + taken

    def _epoch(self) -> np.ndarray:
        if self._order is None:
            drawn = np.arange(self._usable)
        else:
            drawn = torch.randperm(self._rows, generator=self._order).numpy()
            drawn = drawn[: self._usable]
        if self._numbers is not None:
            drawn = self._numbers[drawn]
        return drawn + self._place


def segments(orders: Sequence[Order], size: int, exact: bool) -> Iterator[Segment]:
    """The steps of a group, whose clients stand by falling number of steps.

    Parameters
    ----------
    orders : sequence of Order
    size : int
        The size B of a whole batch.
    exact : bool
        Whether all clients of a segment take all its steps. Otherwise a segment is as
        long as the longest of its clients.
    """
    while active := sum(order.left > 0 for order in orders):
        left = [order.left for order in orders[:active]]
        steps = left[-1] if exact else left[0]
        steps = max(1, min(steps, _MOST // (active * size)))
        rows = np.empty((active, steps, size), np.int32)
        sizes = np.zeros((active, steps), np.int32)
        for k, order in enumerate(orders[:active]):
            order.fill(rows[k], sizes[k])
        yield Segment(
            torch.from_numpy(np.ascontiguousarray(rows.swapaxes(0, 1))),
            torch.from_numpy(np.ascontiguousarray(sizes.T)),
        )
