"""The linear head. Its gradient is computed by hand."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .base import Model, cool_layer
from .vectors import split_vector


class LinearHead(Model):
    """The linear head: logits ``W x + b``. Its representation is the logits."""

    uses_autograd = False
    first_layer = "classifier"

    def __init__(self, in_features: int, num_classes: int):
        super().__init__(in_features, num_classes)
        self.classifier = nn.Linear(in_features, num_classes)

    def represent(self, features: Tensor) -> Tensor:
        return self.classifier(features)

    def cool(self, temperature: float) -> None:
        cool_layer(self.classifier, temperature)

    def last_input(self, features: Tensor) -> Tensor:
        return features

    def gradient_accumulator(self, into: Tensor, beta: float) -> LinearGradient:
        return LinearGradient(self, into, beta)


class LinearGradient:
    """Adds the gradient of cross-entropy, computed by hand, to a vector.

    It does what `Model.gradient_accumulator` says. With softmax s and one-hot labels y,
    the gradient is ``dL/dlogits = (s - y) / B``.

    Parameters
    ----------
    head : LinearHead
        The gradient is taken at the weights that the head has then.
    into : Tensor of shape (P,)
    beta : float
    """

    def __init__(self, head: LinearHead, into: Tensor, beta: float):
        layer, self._beta = head.classifier, beta
        self._weight, self._bias = layer.weight.data, layer.bias.data[:, None]
        self._into_weight, self._into_bias = split_vector(head, into)
        #: By batch size B: ones [B], minus ones [1, B], logits [C, B], residual [C, B].
        self._memory: dict[int, tuple[Tensor, Tensor, Tensor, Tensor]] = {}

    def __call__(self, features: Tensor, labels: Tensor) -> None:
        self.of(features, labels)()

    def of(self, features: Tensor, labels: Tensor) -> Callable[[], None]:
        """A function that adds the gradient of a batch [B, D] with labels [B].

        It may be called again once the batch has other rows.
        """
        size = labels.shape[0]
        if size not in self._memory:
            logits = features.new_empty(len(self._bias), size)
            ones = features.new_ones(size)
            self._memory[size] = ones, -ones[None], logits, logits.clone()
        ones, minus_ones, logits, residual = self._memory[size]
        weight, bias, beta = self._weight, self._bias, self._beta
        into_weight, into_bias, share = self._into_weight, self._into_bias, 1 / size
        transposed, rows = features.t(), labels[None]

        # Classes are the rows of `residual`: both products are faster in this order.
        def add() -> None:
            torch.mm(weight, transposed, out=logits).add_(bias)
            torch.softmax(logits, 0, out=residual)
            residual.scatter_add_(0, rows, minus_ones)
            into_weight.addmm_(residual, features, beta=beta, alpha=share)
            into_bias.addmv_(residual, ones, beta=beta, alpha=share)

        return add
