"""Heads of several clients at once: one batched product in place of many.

The weights of A clients are rows of one tensor [A, P]; see `models.vectors` for the
order of a row's numbers. A batch has B rows for each client: features [A, B, D], labels
[A, B]. A client whose batch is shorter has padded rows. Their weight in `share` [A, B]
is 0, and that of the others is one over the batch's size.

Which rows the steps of a group's clients take: the orders that `fit` draws.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from federatedscope_ggeur.federation.client import TrainingSet
from federatedscope_ggeur.federation.settings import TrainingSettings
from federatedscope_ggeur.models import LinearHead, MLPHead, Model, num_trainable
from federatedscope_ggeur.rng import derive_seed, new_generator, torch_generator


class BatchedHead(ABC):
    """The functions of a head, for A clients with weights of their own.

    Parameters
    ----------
    model : Model
        The head of one client.

    Attributes
    ----------
    size : int
        P, the number of a client's weights.
    classes : int
        C
    dropout : float
        The probability that training drops a unit of `dropped_units`.
    dropped_units : int
        The number of units that dropout may drop; 0 without dropout.
    """

    dropout = 0.0
    dropped_units = 0

    def __init__(self, model: Model):
        self.size, self.classes = num_trainable(model), model.num_classes
        self._shapes = [p.shape for p in model.parameters()]

    def parts(self, weights: Tensor) -> list[Tensor]:
        """Views of `weights` [A, P or more], one [A, ...] for each parameter."""
        parts, start = [], 0
        for shape in self._shapes:
            part = weights[:, start : start + shape.numel()]
            parts.append(part.unflatten(1, shape))
            start += shape.numel()
        return parts

    @abstractmethod
    def represent(self, weights: Tensor, features: Tensor) -> Tensor:
        """`Model.represent` of features [A, B, D]: Tensor of shape (A, B, D').

        `weights` [A, P] are those of each client, or [1, P] for all.
        """

    @abstractmethod
    def classify(
        self, weights: Tensor, representation: Tensor, kept: Tensor | None = None
    ) -> Tensor:
        """`Model.classify` of a representation [A, B, D']: logits [A, B, C].

        `kept` [A, B, dropped_units] says by what dropout multiplies each unit.
        """

    def logits(self, weights: Tensor, features: Tensor) -> Tensor:
        """Logits [A, B, C] without dropout."""
        return self.classify(weights, self.represent(weights, features))

    @abstractmethod
    def add_gradient(
        self,
        weights: Tensor,
        into: Tensor,
        features: Tensor,
        labels: Tensor,
        share: Tensor,
        kept: Tensor | None = None,
    ) -> None:
        """Add each client's gradient of cross-entropy to `into` [A, P], by hand."""


class BatchedLinear(BatchedHead):
    """`LinearHead` of several clients."""

    def represent(self, weights: Tensor, features: Tensor) -> Tensor:
        return _layer(features, *self.parts(weights))

    def classify(
        self, weights: Tensor, representation: Tensor, kept: Tensor | None = None
    ) -> Tensor:
        return representation

    def add_gradient(self, weights, into, features, labels, share, kept=None) -> None:
        residual = _residual(self.represent(weights, features), labels, share)
        _add_of_layer(residual, features, *self.parts(into))


class BatchedMLP(BatchedHead):
    """`MLPHead` of several clients."""

    def __init__(self, model: MLPHead):
        super().__init__(model)
        self._parted = model.parted
        self.dropout = model.dropout.p
        self.dropped_units = model.hidden.out_features if self.dropout else 0

    def represent(self, weights: Tensor, features: Tensor) -> Tensor:
        return F.relu(_layer(features, *self.parts(weights)[:2]))

    def classify(
        self, weights: Tensor, representation: Tensor, kept: Tensor | None = None
    ) -> Tensor:
        units = representation if kept is None else representation * kept
        return _layer(units, *self.parts(weights)[2:])

    def add_gradient(self, weights, into, features, labels, share, kept=None) -> None:
        features, offsets = self._parted(features)
        hidden = self.represent(weights, features)
        units = hidden if kept is None else hidden * kept
        last = self.parts(weights)[2]
        logits = self.classify(weights, units)
        if offsets is not None:
            logits = logits + offsets
        residual = _residual(logits, labels, share)
        first_into = self.parts(into)
        _add_of_layer(residual, units, *first_into[2:])
        back = torch.bmm(residual, last)
        if kept is not None:
            back = back * kept
        _add_of_layer(back * (hidden > 0), features, *first_into[:2])


#: The heads that have a batched form.
_FORMS: dict[type[Model], Callable[[Any], BatchedHead]] = {
    LinearHead: BatchedLinear,
    MLPHead: BatchedMLP,
}


def batched_head(model: Model) -> BatchedHead | None:
    """The batched form of a model; None if its kind has none."""
    form = _FORMS.get(type(model))
    return None if form is None else form(model)


def _layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``W x + b`` of each client: [A, B, out]. One client's weights may serve all."""
    clients = x.shape[0]
    weight, bias = weight.expand(clients, -1, -1), bias.expand(clients, -1)
    return torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))


def _residual(logits: Tensor, labels: Tensor, share: Tensor) -> Tensor:
    """The gradient of cross-entropy in the logits: ``(softmax - one-hot) share``."""
    residual = torch.softmax(logits, dim=2)
    place = labels.unsqueeze(2)
    residual.scatter_add_(2, place, residual.new_full((), -1.0).expand(place.shape))
    return residual.mul_(share.unsqueeze(2))


def _add_of_layer(back: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> None:
    """Add a layer's gradient to `weight` and `bias`.

    `back` [A, B, out] is the gradient in the layer's output, `x` the layer's input.
    """
    weight.baddbmm_(back.transpose(1, 2), x)
    bias.add_(back.sum(dim=1))


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
