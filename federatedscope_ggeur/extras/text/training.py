"""Uses the zero-shot head in training: a pull towards it, and mixtures with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from federatedscope_ggeur.geometry import Space
from federatedscope_ggeur.methods import LocalHooks
from federatedscope_ggeur.models import LinearHead, Model, named_tensors

_WEIGHT = "classifier.weight"


@dataclass(frozen=True, eq=False)
class TextPull:
    """Adds ``strength |W - W_zs|^2`` to the loss of a linear head, W on raw embeddings.

    Attributes
    ----------
    target : Tensor of shape (C, D), float32
        W_zs.
    strength : float
    """

    target: Tensor
    strength: float
    field: ClassVar[str] = "text.regulariser"

    def added(self, hooks: LocalHooks, model: Model, space: Space) -> LocalHooks:
        """Add the gradient of the pull to `hooks`, for a `model` trained in `space`.

        The space maps x to ``x' = T (x - m)`` with T symmetric. A head W' of this space
        is ``W = W' T`` on raw embeddings. So the gradient is ``2 strength (W' T - W_zs)
        T``.
        """
        own, start, scale = hooks.add_correction, 0, 2 * self.strength
        for name, part in named_tensors(model, _numbers(model)).items():
            if name == _WEIGHT:
                break
            start += part.numel()
        end, shape = start + self.target.numel(), self.target.shape
        target = self.target.double()

        def add_correction(params: Tensor, gradient: Tensor) -> None:
            if own is not None:
                own(params, gradient)
            weight = params[start:end].view(shape).cpu().double()
            pull = space.linear(space.linear(weight) - target)
            gradient[start:end].add_(
                pull.flatten().to(gradient.device, gradient.dtype), alpha=scale
            )

        return replace(hooks, add_correction=add_correction)


@dataclass(frozen=True, eq=False)
class TextMix:
    """The head ``(1 - t) W_zs + t W`` with biases ``t b``.

    Attributes
    ----------
    target : Tensor of shape (C, D), float32
        W_zs.
    share : float
        t.

    References
    ----------
    Wortsman et al., "Robust fine-tuning of zero-shot models", 2022 (WiSE-FT).
    """

    target: Tensor
    share: float

    def mixed(self, model: Model, params: Tensor) -> Tensor:
        """Mix the weights [P] of a linear head, on raw embeddings, with W_zs."""
        assert isinstance(model, LinearHead)
        mixed = params.double() * self.share
        named_tensors(model, mixed)[_WEIGHT].add_(
            self.target.double(), alpha=1 - self.share
        )
        return mixed.float()


def _numbers(model: Model) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])
