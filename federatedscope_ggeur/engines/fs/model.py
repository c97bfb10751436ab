"""``model.type: ggeur_head`` in FederatedScope."""

from __future__ import annotations

from torch import nn

from federatedscope_ggeur.models import ModelSettings, build_model


def fs_model(model_config, input_shape) -> nn.Module:
    """The head that ``cfg.model`` describes.

    FS gives registered models ``cfg.model`` and the shape of the data alone. So the
    data function has written the head's sizes there: ``hidden``, ``out_channels`` and
    ``input_shape``. On a server without data they are unknown until clients join; it
    gets an empty module, in whose place the worker puts the head.
    """
    if not input_shape:
        return nn.Module()
    settings = ModelSettings(model_config.hidden, model_config.dropout)
    return build_model(input_shape[-1], model_config.out_channels, settings)
