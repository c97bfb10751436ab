"""Heads of several clients at once: one batched product in place of many.

The weights of A clients are rows of one tensor [A, P]; see `models.vectors` for the
order of a row's numbers. A batch has B rows for each client: features [A, B, D], labels
[A, B]. A client whose batch is shorter has padded rows. Their weight in `share` [A, B]
is 0, and that of the others is one over the batch's size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from federatedscope_ggeur.models import LinearHead, MLPHead, Model, num_trainable


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
        hidden = self.represent(weights, features)
        units = hidden if kept is None else hidden * kept
        last = self.parts(weights)[2]
        residual = _residual(self.classify(weights, units), labels, share)
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
