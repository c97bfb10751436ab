"""`ClassTexts`: the text features of all classes, and how they are used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from federatedscope_ggeur.models.base import Model
from federatedscope_ggeur.models.closed_forms import (
    CLOSED_FORMS,
    ClosedForm,
    LeftOut,
    Seen,
)
from federatedscope_ggeur.models.closed_forms.components import Components
from federatedscope_ggeur.models.closed_forms.known import Report

from .ensemble import EnsembleHead
from .prior import PriorLeftOut, moved_by_text, with_ensemble, with_prior


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
        moved = with_prior(parts, self)
        return moved.means, moved.weights, moved.labels, moved.report()

    def prior_left_out(
        self, parts: Components, shrinkages: Sequence[float], priors: str
    ) -> LeftOut:
        return PriorLeftOut(parts, shrinkages, priors, self)

    def guess(self, fit: Callable[[Tensor], float]) -> tuple[Tensor, Report]:
        a = fit(self.offsets)
        return a * self.offsets, {"prior": "text", "text_bridge": a}

    def with_ensemble(self, score: LeftOut) -> LeftOut:
        return with_ensemble(score, self)

    def ensemble_of(self, head: Model, alone: bool = False) -> EnsembleHead:
        if isinstance(head, EnsembleHead):
            return head
        return EnsembleHead.of(head, None if alone else self)

    def described(self) -> Report:
        return {"text_ensemble": self.ensemble}


def placeholder(num_classes: int, dim: int) -> ClassTexts:
    """Text features of the right shape, for a model whose numbers are loaded later."""
    return ClassTexts(torch.zeros(num_classes, dim), 1.0)
