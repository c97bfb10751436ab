"""Which rows the steps of a group's clients take: the orders that `fit` draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.federation.client import TrainingSet
from federatedscope_ggeur.federation.training_settings import TrainingSettings
from federatedscope_ggeur.rng import derive_seed, new_generator, torch_generator

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


class Orders:
    """The batches of a group's clients, in the order in which `fit` takes them.

    The clients stand by falling number of steps. Each begins with the first step, so
    all that have not finished have taken as many.

    Parameters
    ----------
    sets : sequence of TrainingSet, of length K
    places : sequence of int
        The number of the first row of each set among the rows of all clients.
    settings : TrainingSettings
    seeds : sequence of int
        The seed of `fit` of each client.

    Attributes
    ----------
    steps : list of int
        The mini-batches of each client's round.
    """

    def __init__(
        self,
        sets: Sequence[TrainingSet],
        places: Sequence[int],
        settings: TrainingSettings,
        seeds: Sequence[int],
    ):
        self._size, self._shuffle = settings.batch_size, settings.shuffle
        self._seeds = seeds
        self._rows = [one.size for one in sets]
        self._numbers = [_numbers(one) for one in sets]
        self._usable = [settings.usable(rows) for rows in self._rows]
        self.steps = [settings.batches(rows) for rows in self._rows]
        self._of_epoch = [-(-rows // self._size) for rows in self._usable]  # steps
        # By client, for work on all clients at once.
        self._table = np.array([self._usable, self.steps, self._of_epoch])
        self._places = np.array(places, np.int32)
        # A row of the client's own: no other client's rows come into its batches.
        self._padding = np.array(
            [0 if n is None or not len(n) else n[0] for n in self._numbers]
        )
        # The orders of each client's present epoch.
        drawn = torch.empty(sum(self._rows), dtype=torch.int64)
        self._drawn, every = drawn.split(self._rows), drawn.numpy()
        ends = accumulate(self._rows)
        self._orders = [every[end - n : end] for n, end in zip(self._rows, ends)]
        # Clients of one epoch share a generator: a new one takes half as long as to
        # draw a small epoch.
        self._is_only = [n <= one for n, one in zip(self.steps, self._of_epoch)]
        self._shared = new_generator()
        self._generators: dict[int, torch.Generator] = {}

    def segments(self, exact: bool) -> Iterator[Segment]:
        """The steps of the group.

        Parameters
        ----------
        exact : bool
            Whether all clients of a segment take all its steps. Otherwise a segment is
            as long as the longest of its clients.
        """
        taken, size = 0, self._size
        while active := int(np.count_nonzero(self._table[1] > taken)):
            end = self.steps[active - 1 if exact else 0]
            steps = max(1, min(end - taken, _MOST // (active * size)))
            yield self._segment(active, taken, steps)
            taken += steps

    def _segment(self, active: int, first: int, steps: int) -> Segment:
        """So many steps of the first clients, from the step `first` on."""
        size = self._size
        sizes = self._sizes(active, np.arange(first, first + steps))
        rows = np.empty((active, steps * size), np.int32)
        rows[:] = self._padding[:active, None]
        for k, into in enumerate(rows):
            step, end = first, min(first + steps, self.steps[k])
            while step < end:
                begin = step % self._of_epoch[k]
                if not begin:
                    self._draw(k)
                stop = min(self._of_epoch[k], begin + end - step)
                last = min(stop * size, self._usable[k])
                part, at = self._orders[k][begin * size : last], (step - first) * size
                numbers = self._numbers[k]
                into[at : at + len(part)] = part if numbers is None else numbers[part]
                step += stop - begin
        rows += self._places[:active, None]
        by_step = rows.reshape(active, steps, size).swapaxes(0, 1)
        return Segment(
            torch.from_numpy(np.ascontiguousarray(by_step)),
            torch.from_numpy(np.ascontiguousarray(sizes.T)),
        )

    def _sizes(self, active: int, steps: np.ndarray) -> np.ndarray:
        """The rows of each batch that count: int32 [A, steps]."""
        usable, ends, of_epoch = self._table[:, :active, None]
        sizes = np.minimum(usable - steps % of_epoch * self._size, self._size)
        sizes[steps >= ends] = 0
        return sizes.astype(np.int32)

    def _draw(self, k: int) -> None:
        """Draw the order of a client's next epoch."""
        into = self._drawn[k]
        if self._shuffle:
            torch.randperm(self._rows[k], generator=self._generator(k), out=into)
        else:
            torch.arange(self._rows[k], out=into)

    def _generator(self, k: int) -> torch.Generator:
        if self._is_only[k]:
            return self._shared.manual_seed(derive_seed(self._seeds[k], "order"))
        if k not in self._generators:
            self._generators[k] = torch_generator(self._seeds[k], "order")
        return self._generators[k]


def _numbers(rows: TrainingSet) -> np.ndarray | None:
    """The row numbers of a set that has some of its rows, or another order."""
    return None if rows.order is None else rows.order.cpu().numpy()
