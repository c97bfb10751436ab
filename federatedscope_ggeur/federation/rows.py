"""Which rows a model can train on."""

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
        f"{name}: must be set, because the data are pixels; or take an {encoder} "
        "that embeds images"
        if pixels
        else f"{name}: a network is trained on pixels, but the data are embeddings; "
        f"set {encoder} image with a data set of images, or leave {name} out"
    )


def chosen_rows(
    features: Tensor, labels: Tensor, chosen: Tensor
) -> tuple[Tensor, Tensor]:
    """The rows with `chosen` [n] true. If all are chosen, no copy is made."""
    if bool(chosen.all()):
        return features, labels
    return features[chosen], labels[chosen]
