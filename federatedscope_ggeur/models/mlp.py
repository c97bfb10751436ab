"""The head with one hidden layer: Linear, ReLU, Dropout, Linear."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from .base import Model, cool_layer
from .dropout import Dropout


class MLPHead(Model):
    """A head with one hidden layer, whose output is the representation.

    Parameters
    ----------
    in_features, num_classes : int
    hidden : int
        Units of the hidden layer. This is D' of the representation.
    dropout : float
        The probability that training drops a hidden unit, in [0, 1).
    """

    first_layer = "hidden"

    def __init__(
        self, in_features: int, num_classes: int, hidden: int, dropout: float = 0.0
    ):
        super().__init__(in_features, num_classes)
        self.hidden = nn.Linear(in_features, hidden)
        self.dropout = Dropout(dropout)
        self.classifier = nn.Linear(hidden, num_classes)

    def represent(self, features: Tensor) -> Tensor:
        return F.relu(self.hidden(features))

    def cool(self, temperature: float) -> None:
        cool_layer(self.classifier, temperature)

    def last_input(self, features: Tensor) -> Tensor:
        return self.represent(features)

    def classify(self, representation: Tensor) -> Tensor:
        return self.classifier(self.dropout(representation))
