"""Classifiers on embeddings."""

from __future__ import annotations

from dataclasses import dataclass

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.models.base import (
    Model,
    add_autograd_gradient,
    bind_vector,
    load_vector,
    named_tensors,
    num_parameters,
    split_vector,
    to_vector,
)
from federatedscope_ggeur.models.ccvr import (
    draw_features,
    put_last_layer,
    take_last_layer,
)
from federatedscope_ggeur.models.closed_form import (
    ClosedForm,
    ClosedFormSettings,
    closed_form,
)
from federatedscope_ggeur.models.linear import LinearHead
from federatedscope_ggeur.models.mlp import MLPHead
from federatedscope_ggeur.models.quadratic import QuadraticHead


@dataclass(frozen=True)
class ModelSettings:
    """Which head: `hidden` units (0 for the linear head) and their dropout.

    `quadratic` is the head that quadratic discriminant analysis works out.
    """

    hidden: int = 0
    dropout: float = 0.0
    quadratic: bool = False


def build_model(in_features: int, num_classes: int, settings: ModelSettings) -> Model:
    """The head for embeddings of `in_features` dimensions and `num_classes` classes.

    Raises
    ------
    ConfigError
        A quadratic head with hidden units.
    """
    if settings.quadratic:
        if settings.hidden:
            raise ConfigError(
                f"a quadratic head has no hidden units, got {settings.hidden}: set "
                "ggeur.mlp_hidden_dim to 0 with ggeur.closed_form: qda"
            )
        return QuadraticHead(in_features, num_classes)
    if settings.hidden == 0:
        return LinearHead(in_features, num_classes)
    return MLPHead(in_features, num_classes, settings.hidden, settings.dropout)


__all__ = [
    "ClosedForm",
    "ClosedFormSettings",
    "Head",
    "HeadSettings",
    "LinearHead",
    "MLPHead",
    "QuadraticHead",
    "add_autograd_gradient",
    "bind_vector",
    "build_head",
    "closed_form",
    "draw_features",
    "load_vector",
    "named_tensors",
    "num_parameters",
    "put_last_layer",
    "split_vector",
    "take_last_layer",
    "to_vector",
]
