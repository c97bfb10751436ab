"""The mean of the probabilities of two heads, as one head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .base import Model
from .linear import LinearHead
from .mixture import MixtureHead
from .vectors import to_vector


class AverageHead(Model):
    """The mean of the probabilities of a one-shot head and of a trained head.

    The logits are ``log(s softmax(a(x)) + (1 - s) softmax(b(x)))``, where a and b are
    the logits of the two heads. Both are mixture heads; a linear head is one with a
    component for each class. The model is not trained.

    Attributes
    ----------
    share : Parameter of shape (1,)
        s: 1 for the one-shot head alone, 0 for the trained head alone.
    one_shot : MixtureHead
    trained : MixtureHead
        It has one component for each class.
    """

    fixed_size = False

    def __init__(self, in_features: int, num_classes: int):
        super().__init__(in_features, num_classes)
        self.share = nn.Parameter(torch.ones(1))
        self.one_shot = MixtureHead(in_features, num_classes)
        self.trained = MixtureHead(in_features, num_classes)

    @classmethod
    def alone(cls, head: MixtureHead | LinearHead, trained: bool) -> AverageHead:
        """The head with the probabilities of `head`, as its one-shot or trained part.

        A mixture with several components for a class is one-shot.
        """
        model = cls(head.in_features, head.num_classes)
        if isinstance(head, LinearHead):
            head = MixtureHead.of_linear(head)
        if trained:
            model.trained = head
            model.share.data.zero_()
        else:
            model.one_shot = head
        return model

    def reset(self, generator: torch.Generator | None = None) -> Model:
        """Set all weights to zero. Nothing is drawn."""
        self.share.data.fill_(1.0)
        self.one_shot.reset()
        self.trained.reset()
        return self

    def make_room_for(self, size: int) -> None:
        """Resize the one-shot part, so that the whole model has `size` parameters."""
        others = (self.share, *self.trained.parameters())
        self.one_shot.make_room_for(size - sum(p.numel() for p in others))

    @property
    def can_cool(self) -> bool:
        """Whether this is one head alone; the logits of a mean cannot be divided."""
        return self.share.item() in (0.0, 1.0)

    def cool(self, temperature: float) -> None:
        if not self.can_cool:
            super().cool(temperature)
        (self.one_shot if self.share else self.trained).cool(temperature)

    def represent(self, features: Tensor) -> Tensor:
        parts = torch.stack([self.one_shot(features), self.trained(features)])
        shares = torch.cat([self.share, 1 - self.share])
        return (parts.log_softmax(dim=2) + shares.log()[:, None, None]).logsumexp(dim=0)


def averaged(model: Model, one_shot: Tensor, trained: Tensor) -> Tensor:
    """The parameters of the mean of two heads that are each alone in an `AverageHead`.

    `one_shot` and `trained` are the parameters of these heads.
    """
    first, mean = model.at(one_shot), model.at(trained)
    assert isinstance(first, AverageHead)
    assert isinstance(mean, AverageHead)
    mean.one_shot = first.one_shot
    mean.share.data.fill_(0.5)
    return to_vector(mean)
