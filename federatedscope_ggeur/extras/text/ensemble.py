"""The sum of a zero-shot head and a head in closed form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from federatedscope_ggeur.models.base import Model
from federatedscope_ggeur.models.linear import LinearHead
from federatedscope_ggeur.models.mixture import MixtureHead

if TYPE_CHECKING:
    from .classes import ClassTexts


class EnsembleHead(Model):
    """The sum of a head from text and a mixture head.

    The logits are ``V x/|x| + log sum_{j of c} exp(w_j x + b_j)``.

    With one component for each class, the second part is linear. The head is not
    trained, and has no last layer that could be trained. Its representation is the
    logits.

    Attributes
    ----------
    zero_shot : Parameter of shape (C, D)
        V, the scaled text features; zeros if there is no zero-shot part.
    statistics : MixtureHead
        The second part.

    References
    ----------
    Wang et al., "A hard-to-beat baseline for training-free CLIP-based adaptation", ICLR
    2024.
    """

    fixed_size = False

    def __init__(self, in_features: int, num_classes: int):
        super().__init__(in_features, num_classes)
        self.zero_shot = nn.Parameter(torch.zeros(num_classes, in_features))
        self.statistics = MixtureHead(in_features, num_classes)

    @classmethod
    def of(cls, head: Model, text: ClassTexts | None = None) -> EnsembleHead:
        """Make the ensemble of a zero-shot head and alpha times a linear head.

        Without `text`, the ensemble has the logits of `head` alone, and `head` may be
        any head in closed form.
        """
        model = cls(head.in_features, head.num_classes)
        mixture = head
        if isinstance(head, LinearHead):
            mixture = MixtureHead.of_linear(head)
        assert isinstance(mixture, MixtureHead)
        with torch.no_grad():
            if text is not None:
                assert isinstance(head, LinearHead)  # a multiple of it is linear, too
                mixture.weight.mul_(text.ensemble)
                mixture.bias.mul_(text.ensemble)
                model.zero_shot.copy_(text.weight)
        model.statistics = mixture
        return model

    @property
    def classifier(self) -> nn.Linear:  # type: ignore[override]  # there is none
        return self.statistics.classifier

    def last_input(self, features: Tensor) -> Tensor:
        return self.statistics.last_input(features)

    def reset(self, generator: torch.Generator | None = None) -> Model:
        """Set all parameters to zero. Nothing is drawn."""
        self.statistics.reset()
        with torch.no_grad():
            self.zero_shot.zero_()
        return self

    def make_room_for(self, size: int) -> None:
        """Resize the mixture, so that the whole model has `size` parameters."""
        self.statistics.make_room_for(size - self.zero_shot.numel())

    def cool(self, temperature: float) -> None:
        with torch.no_grad():
            self.zero_shot.copy_(self.zero_shot.double() / temperature)
        self.statistics.cool(temperature)

    def represent(self, features: Tensor) -> Tensor:
        unit = F.normalize(features, dim=1)
        return unit @ self.zero_shot.T + self.statistics(features)
