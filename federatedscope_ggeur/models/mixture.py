"""The mixture head: several linear scores for each class."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from federatedscope_ggeur.errors import ConfigError

from .base import Model
from .linear import LinearHead


class MixtureHead(Model):
    """The mixture head: a class has one or more components j.

    The logits are ``s log sum_{j of c} exp(w_j x + b_j)``.

    Each class has one or more components. Their number is known only once the head is
    computed, so the length of the parameter vector may vary. The head is not trained,
    and has no last layer that could be trained. Its representation is the logits.

    Attributes
    ----------
    weight : Parameter of shape (J, D)
    bias : Parameter of shape (J,)
    classes : Parameter of shape (J,)
        The class of each component. Every class has at least one.
    scale : Parameter of shape (1,)
        s, the inverse of the temperature.
    """

    fixed_size = False

    def __init__(self, in_features: int, num_classes: int):
        super().__init__(in_features, num_classes)
        self.scale = nn.Parameter(torch.ones(1))
        self._make_room(num_classes)
        self.reset()

    @classmethod
    def of_components(
        cls, weight: Tensor, bias: Tensor, classes: Tensor, num_classes: int
    ) -> MixtureHead:
        """Make the head from weights [J, D], biases [J] and `classes` [J]."""
        model = cls(weight.shape[1], num_classes)
        model._make_room(len(weight))
        with torch.no_grad():
            model.weight.copy_(weight)
            model.bias.copy_(bias)
            model.classes.copy_(classes)
        return model

    @classmethod
    def of_linear(cls, head: LinearHead) -> MixtureHead:
        """Make the mixture head with the same logits as a linear head."""
        layer = head.classifier
        classes = torch.arange(head.num_classes)
        return cls.of_components(layer.weight, layer.bias, classes, head.num_classes)

    @property
    def classifier(self) -> nn.Linear:  # type: ignore[override]  # there is none
        raise ConfigError(_NO_LAST_LAYER)

    def last_input(self, features: Tensor) -> Tensor:
        raise ConfigError(_NO_LAST_LAYER)

    def reset(self, generator: torch.Generator | None = None) -> Model:
        """Set one component of zeros for each class. Nothing is drawn."""
        self._make_room(self.num_classes)
        with torch.no_grad():
            self.weight.zero_()
            self.bias.zero_()
            self.classes.copy_(torch.arange(self.num_classes))
            self.scale.fill_(1.0)
        return self

    def make_room_for(self, size: int) -> None:
        """Take as many components as a vector of `size` parameters holds.

        Raises
        ------
        ConfigError
            No number of components gives exactly `size` parameters.
        """
        components, rest = divmod(size - 1, self.in_features + 2)
        if rest or components < self.num_classes:
            raise ConfigError(
                f"{size} parameters do not fit a mixture head of "
                f"{self.num_classes} classes in {self.in_features} dimensions"
            )
        self._make_room(components)

    def cool(self, temperature: float) -> None:
        with torch.no_grad():
            self.scale.fill_(1 / temperature)

    def represent(self, features: Tensor) -> Tensor:
        scores = features @ self.weight.T + self.bias
        of_class = self.classes.long()
        columns = [
            scores[:, of_class == c].logsumexp(dim=1) for c in range(self.num_classes)
        ]
        return self.scale * torch.stack(columns, dim=1)

    def _make_room(self, components: int) -> None:
        self.weight = nn.Parameter(torch.zeros(components, self.in_features))
        self.bias = nn.Parameter(torch.zeros(components))
        self.classes = nn.Parameter(torch.zeros(components))

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        bias = state_dict.get(f"{prefix}bias")
        if bias is not None:
            self._make_room(len(bias))
        # Heads that are older than temperatures have no scale.
        state_dict.setdefault(f"{prefix}scale", torch.ones(1))
        super()._load_from_state_dict(state_dict, prefix, *args)


_NO_LAST_LAYER = (
    "a mixture head has no last layer to train, but calibration needs one; take a "
    "linear or MLP head"
)
