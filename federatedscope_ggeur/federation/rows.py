"""Checks that a model can train on given rows, and selects rows."""

from __future__ import annotations

import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.models import OTHER_MODELS, Model


def check_rows(model: Model, features: Tensor) -> None:
    """Refuse embeddings for a model of images, and pixels for a head.

    Raises
    ------
    ConfigError
    """
    pixels = features.dtype == torch.uint8
    if pixels == model.takes_images:
        return
    if not pixels:
        raise ConfigError(model.lacks_pixels)
    takes = [name for name, part in OTHER_MODELS.items() if part.takes_images]
    ways = [*map(setting, takes), f"an {setting('encoder.name')} that embeds images"]
    raise ConfigError(f"the data are pixels: set {', or '.join(ways)}")


def chosen_rows(
    features: Tensor, labels: Tensor, chosen: Tensor
) -> tuple[Tensor, Tensor]:
    """The rows for which `chosen` [n] is true; if it always is, no copy is made."""
    if bool(chosen.all()):
        return features, labels
    return features[chosen], labels[chosen]
