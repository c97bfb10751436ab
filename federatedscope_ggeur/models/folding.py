"""Move a model's parameters between a space and raw embeddings, or to another kind."""

from __future__ import annotations

import copy

from torch import Tensor

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.geometry import Space

from .average import AverageHead
from .base import Model
from .linear import LinearHead
from .mixture import MixtureHead
from .vectors import load_vector, named_tensors, to_vector


def fold(model: Model, params: Tensor, space: Space) -> Tensor:
    """Parameters [P] that give the same logits on raw embeddings x.

    `params` [P] are for rows ``x' = T (x - m)`` in `space`. The first layer ``W' x' +
    b'`` becomes ``W x + b`` with ``W = W' T`` and ``b = b' - W m``. It is computed in
    float64 and rounded once. Other layers stay.

    Raises
    ------
    ConfigError
        The model has no linear first layer.
    """
    if space.is_raw:
        return params
    folded, weight, bias = _first_layer(model, params)
    inner = space.linear(weight.double())
    bias.copy_(bias.double() - inner @ space.centre)
    weight.copy_(inner)
    return folded


def unfold(model: Model, params: Tensor, space: Space) -> Tensor:
    """Turn parameters [P] for raw rows into parameters for rows in `space`.

    This reverses `fold`.

    The first layer becomes ``W' = W T^-1`` and ``b' = b + W m``.

    Raises
    ------
    ConfigError
        The model has no linear first layer.
    """
    if space.is_raw:
        return params
    unfolded, weight, bias = _first_layer(model, params)
    outer = weight.double()
    bias.copy_(bias.double() + outer @ space.centre)
    weight.copy_(space.inverse_linear(outer))
    return unfolded


def recast(model: Model, params: Tensor, wanted: Model, trained: bool = True) -> Tensor:
    """The parameters with which `wanted` has the logits that `model` has with `params`
    [P].

    In an average of a one-shot head and a trained one, `trained` says which it is.

    Raises
    ------
    ConfigError
        A model of that kind cannot become one of the wanted kind.
    """
    if type(model) is type(wanted):
        return params
    if isinstance(model, LinearHead) and isinstance(wanted, MixtureHead):
        load_vector(model := copy.deepcopy(model), params)
        return to_vector(MixtureHead.of_linear(model))
    if isinstance(model, (LinearHead, MixtureHead)) and isinstance(wanted, AverageHead):
        load_vector(model := copy.deepcopy(model), params)
        return to_vector(AverageHead.alone(model, trained))
    left = model.at(params).to_leave()
    if type(left) is type(wanted):
        return to_vector(left)
    raise ConfigError(
        f"the parameters of a {type(model).__name__} cannot be those of a "
        f"{type(wanted).__name__}"
    )


def _first_layer(model: Model, params: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A copy of `params`, and in it the first layer's weight [H, D] and bias [H]."""
    if not model.first_layer:
        raise ConfigError(
            f"space: must be raw with a {type(model).__name__}, because its first "
            "layer is not linear"
        )
    params = params.clone()
    named = named_tensors(model, params)
    weight, bias = (named[f"{model.first_layer}.{name}"] for name in ("weight", "bias"))
    return params, weight, bias
