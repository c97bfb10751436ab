"""The linear head. Its gradient is computed by hand."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from federatedscope_ggeur.models.base import Accumulator, Model
from federatedscope_ggeur.models.vectors import split_vector


class LinearHead(Model):
    """The linear head: logits ``W x + b``. Its representation is the logits."""

    uses_autograd = False
    first_layer = "classifier"

    def __init__(self, in_features: int, num_classes: int):
        super().__init__(in_features, num_classes)
        self.classifier = nn.Linear(in_features, num_classes)

    def represent(self, features: Tensor) -> Tensor:
        return self.classifier(features)

    def classify(self, representation: Tensor) -> Tensor:
        return representation

    def last_input(self, features: Tensor) -> Tensor:
        return features

    def gradient_accumulator(self, into: Tensor, beta: float) -> Accumulator:
        """Do the same as `Model.gradient_accumulator`, with a gradient computed by
        hand.

        The gradient is ``dL/dlogits = (softmax - one_hot) / B``.
        """
        weight, bias = self.classifier.weight.data, self.classifier.bias.data[:, None]
        into_weight, into_bias = split_vector(self, into)
        ones, minus_ones = into.new_ones(0), into.new_ones(1, 0)

        # Classes are the rows of `residual`: both products are faster in this order.
        def accumulate(features: Tensor, labels: Tensor) -> None:
            nonlocal ones, minus_ones
            size = labels.shape[0]
            if ones.shape[0] != size:
                ones = into.new_ones(size)
                minus_ones = -ones[None]
            residual = torch.mm(weight, features.t()).add_(bias).softmax(dim=0)
            residual.scatter_add_(0, labels.unsqueeze(0), minus_ones)
            into_weight.addmm_(residual, features, beta=beta, alpha=1 / size)
            into_bias.addmv_(residual, ones, beta=beta, alpha=1 / size)

        return accumulate
