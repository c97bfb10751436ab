"""`ClassTexts`: the text features of all classes, and how they are used.

The sum of a zero-shot head and a head in closed form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from federatedscope_ggeur.models import Model
from federatedscope_ggeur.models.closed_forms import (
    CLOSED_FORMS,
    ClosedForm,
    LeftOut,
    Seen,
)
from federatedscope_ggeur.models.closed_forms.base import Report
from federatedscope_ggeur.models.closed_forms.components import Components, ScoredRows
from federatedscope_ggeur.models.heads import LinearHead, MixtureHead

from .prior import PriorLeftOut, moved_by_text, with_prior


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


@dataclass(frozen=True, eq=False)
class ClassTexts:
    """The text features of all classes, and how they are used.

    Attributes
    ----------
    features : Tensor of shape (C, D), float32
        w_c, one vector of length 1 for each class.
    scale : float
        The factor s of the zero-shot logits ``s <x/|x|, w_c>``.
    key : str
        Identifies the features: other features have another key.
    prior : float
        kappa: in closed forms, the text of a class counts like this many rows. 0 means
        no prior.
    ensemble : float
        alpha of ``s <x/|x|, w_c> + alpha (logit of a closed form)``. 0 means no
        ensemble.
    prompts : object or None
        The text tower, for a text model with `learns_prompts`. Its `encode(context,
        classes)` gives text features [C', D] for a context [n, d]. d is its `width`.
    weight : Tensor of shape (C, D), float32
        ``s w_c``, the weights of the zero-shot head.
    """

    features: Tensor
    scale: float
    key: str = ""
    prior: float = 0.0
    ensemble: float = 0.0
    prompts: Any = None

    @property
    def weight(self) -> Tensor:
        """The weights ``s w_c`` of the zero-shot head: shape (C, D), float32."""
        return self.scale * self.features

    @property
    def offsets(self) -> Tensor:
        """The features minus their mean, ``w_c - mean w``: shape (C, D), float64."""
        rows = self.features.double()
        return rows - rows.mean(dim=0)

    def logits(self, rows: Tensor) -> Tensor:
        """The zero-shot logits ``s <x/|x|, w_c>`` of rows x [n, D]: (n, C), float64."""
        unit = F.normalize(rows.double(), dim=1)
        return unit @ (self.scale * self.features.double()).T

    # What follows is asked by closed forms, see `Known`.

    def plain(self) -> ClassTexts:
        return replace(self, ensemble=0.0)

    def alone(self) -> ClosedForm:
        return CLOSED_FORMS["zeroshot"]().knowing(self)

    def moved_seen(self, seen: Seen) -> tuple[Seen, Report]:
        return moved_by_text(seen, self)

    def moved_components(
        self, parts: Components
    ) -> tuple[Tensor, Tensor, Tensor, Report]:
        return with_prior(parts, self)

    def prior_left_out(
        self, parts: Components, shrinkages: Sequence[float], priors: str
    ) -> LeftOut:
        return PriorLeftOut(parts, shrinkages, priors, self)

    def guess(self, fit: Callable[[Tensor], float]) -> tuple[Tensor, Report]:
        a = fit(self.offsets)
        return a * self.offsets, {"prior": "text", "text_bridge": a}

    def with_ensemble(self, score: LeftOut) -> LeftOut:
        if not self.ensemble:
            return score

        def together(rows: ScoredRows) -> list[Tensor]:
            zero_shot = self.logits(rows.features)
            return [zero_shot + self.ensemble * scores for scores in score(rows)]

        return together

    def ensemble_of(self, head: Model, alone: bool = False) -> EnsembleHead:
        if isinstance(head, EnsembleHead):
            return head
        return EnsembleHead.of(head, None if alone else self)

    def described(self) -> Report:
        return {"text_ensemble": self.ensemble}


def placeholder(num_classes: int, dim: int) -> ClassTexts:
    """Text features of the right shape, for a model whose numbers are loaded later."""
    return ClassTexts(torch.zeros(num_classes, dim), 1.0)
