"""Classifier calibration with virtual representations (CCVR).

This file has its settings, its draws of features, and the last layer that it trains.

Luo et al., "No fear of heterogeneity: classifier calibration for federated learning
with non-IID data", NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.geometry import GeometricShape, Statistics
from federatedscope_ggeur.rng import torch_generator

from .base import Model
from .vectors import split_vector


def draw_features(
    statistics: Statistics, per_class: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Draw features from ``N(mu_c, Sigma_c)`` for every class with samples.

    Parameters
    ----------
    statistics : Statistics
        The statistics of the last layer's inputs. ``Sigma_c`` is divided by n.
    per_class : int
        Draws for each class. All classes together have M draws.
    seed : int
        The draws of a class depend only on the seed, the class and its statistics.

    Returns
    -------
    tuple of Tensor of shape (M, D), float32, and Tensor of shape (M,), int64
        The features and their labels, in class order.

    Raises
    ------
    StatisticsError
        No class has samples.
    """
    if not statistics.classes:
        raise StatisticsError("no class has statistics, so no features can be drawn")
    features = [_draw_class(statistics, c, per_class, seed) for c in statistics.classes]
    labels = torch.tensor(statistics.classes).repeat_interleave(per_class)
    return torch.cat(features), labels


def _draw_class(statistics: Statistics, c: int, rows: int, seed: int) -> Tensor:
    basis = GeometricShape.from_statistics(statistics, c).basis()
    noise = torch.randn(
        rows, len(basis), dtype=basis.dtype, generator=torch_generator(seed, "ccvr", c)
    )
    return (statistics.means[c] + noise @ basis).float()


def take_last_layer(model: Model, params: Tensor, classes: Sequence[int]) -> Tensor:
    """Copy the last layer of `model` at parameters `params` [P], for some classes.

    Returns
    -------
    Tensor of shape (len(classes) * (D'' + 1),)
        The vector of a `LinearHead` from the D'' inputs of the last layer to `classes`,
        in their order.

    Raises
    ------
    ConfigError
        The model has no last layer.
    """
    weight, bias = _last_layer(model, params)
    rows = list(classes)
    return torch.cat([weight[rows].flatten(), bias[rows]])


def put_last_layer(
    model: Model, params: Tensor, classes: Sequence[int], vector: Tensor
) -> Tensor:
    """A copy of `params` [P] with new values in the rows that `take_last_layer` copied.

    Parameters
    ----------
    model, params, classes
        As for `take_last_layer`.
    vector : Tensor of shape (len(classes) * (D'' + 1),)

    Returns
    -------
    Tensor of shape (P,)
        It differs from `params` only in the last layer's rows of `classes`.
    """
    params = params.clone()
    weight, bias = _last_layer(model, params)
    rows, width = list(classes), weight.shape[1]
    weight[rows] = vector[: len(rows) * width].view(len(rows), width)
    bias[rows] = vector[len(rows) * width :]
    return params


def _last_layer(model: Model, params: Tensor) -> tuple[Tensor, Tensor]:
    """Weight [C, D''] and bias [C] of the last layer as views of `params`."""
    width = model.classifier.in_features
    parts = dict(zip(map(id, model.parameters()), split_vector(model, params)))
    layer = model.classifier
    return parts[id(layer.weight)].view(-1, width), parts[id(layer.bias)]
