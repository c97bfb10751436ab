"""Checks that a model can train on given rows, and selects rows."""

from __future__ import annotations

import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.models import Model


def check_rows(model: Model, features: Tensor) -> None:
    """Refuse embeddings for a network, and pixels for a head.

    Raises
    ------
    ConfigError
    """
    pixels = features.dtype == torch.uint8
    if pixels == model.takes_images:
        return
    name, encoder = setting("network.name"), setting("encoder.name")
    raise ConfigError(
        f"the data are pixels: set {name}, or an {encoder} that embeds images"
        if pixels
        else f"{name}: a network trains on pixels, but the data are embeddings. "
        f"Leave {name} out, or set {encoder} to image and use a data set of "
        "images"
    )


def chosen_rows(
    features: Tensor, labels: Tensor, chosen: Tensor
) -> tuple[Tensor, Tensor]:
    """The rows for which `chosen` [n] is true; if it always is, no copy is made."""
    if bool(chosen.all()):
        return features, labels
    return features[chosen], labels[chosen]
