"""Which rows the steps of a group's clients take: the orders that `fit` draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.federation.client import TrainingSet
from federatedscope_ggeur.federation.training_settings import TrainingSettings
from federatedscope_ggeur.rng import derive_seed, new_generator

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
    """

    def __init__(
        self,
        sets: Sequence[TrainingSet],
        places: Sequence[int],
        settings: TrainingSettings,
        seeds: Sequence[int],
    ):
        self._size, self._shuffle = settings.batch_size, settings.shuffle
        self._seeds, self._rows = seeds, [one.size for one in sets]
        self._numbers = [_numbers(one) for one in sets]
        usable = [settings.usable(rows) for rows in self._rows]
        self._steps = [settings.batches(rows) for rows in self._rows]
        self._of_epoch = [-(-rows // self._size) for rows in usable]  # steps
        # By client, for work on all clients at once.
        self._ends, self._epochs = np.array(self._steps), np.array(self._of_epoch)
        self._usable, self._places = np.array(usable), np.array(places, np.int32)
        # A row of the client's own: no other client's rows come into its batches.
        self._padding = np.array(
            [0 if n is None or not len(n) else n[0] for n in self._numbers]
        )
        self._shared = new_generator()
        self._generators: dict[int, torch.Generator] = {}
        self._drawn: dict[int, np.ndarray] = {}

    def segments(self, exact: bool) -> Iterator[Segment]:
        """The steps of the group.

        Parameters
        ----------
        exact : bool
            Whether all clients of a segment take all its steps. Otherwise a segment is
            as long as the longest of its clients.
        """
        taken, size = 0, self._size
        while active := int(np.count_nonzero(self._ends > taken)):
            end = self._steps[active - 1 if exact else 0]
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
            step, end = first, min(first + steps, self._steps[k])
            while step < end:
                begin = step % self._of_epoch[k]
                if not begin:
                    self._drawn[k] = self._epoch(k)
                stop = min(self._of_epoch[k], begin + end - step)
                part, at = self._drawn[k][begin * size : stop * size], step - first
                into[at * size : at * size + len(part)] = part
                step += stop - begin
        rows += self._places[:active, None]
        rows = rows.reshape(active, steps, size).swapaxes(0, 1)
        return Segment(
            torch.from_numpy(np.ascontiguousarray(rows)),
            torch.from_numpy(np.ascontiguousarray(sizes.T)),
        )

    def _sizes(self, active: int, steps: np.ndarray) -> np.ndarray:
        """The rows of each batch that count: int32 [A, steps]."""
        begins = steps % self._epochs[:active, None] * self._size
        sizes = np.minimum(self._usable[:active, None] - begins, self._size)
        sizes[steps >= self._ends[:active, None]] = 0
        return sizes.astype(np.int32)

    def _epoch(self, k: int) -> np.ndarray:
        """The rows of a client's next epoch, by their numbers within its set."""
        if self._shuffle:
            rows, order = self._rows[k], self._generator(k)
            drawn = torch.randperm(rows, generator=order).numpy()[: self._usable[k]]
        else:
            drawn = np.arange(self._usable[k])
        numbers = self._numbers[k]
        return drawn if numbers is None else numbers[drawn]

    def _generator(self, k: int) -> torch.Generator:
        order = self._generators.get(k)
        if order is None:
            # Clients of one epoch share a generator: a new one takes half as long as to
            # draw a small epoch.
            is_only = self._steps[k] <= self._of_epoch[k]
            order = self._shared if is_only else new_generator()
            order.manual_seed(derive_seed(self._seeds[k], "order"))
            if not is_only:
                self._generators[k] = order
        return order


def _numbers(rows: TrainingSet) -> np.ndarray | None:
    """The row numbers of a set that has some of its rows, or another order."""
    return None if rows.order is None else rows.order.cpu().numpy()
