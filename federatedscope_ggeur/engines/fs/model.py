"""Makes the model of ``model.type: ggeur_head`` in FederatedScope (FS)."""

from __future__ import annotations

from torch import nn

from federatedscope_ggeur.models import ModelSettings, build_model


def fs_model(model_config, input_shape) -> nn.Module:
    """Make the head that ``cfg.model`` describes.

    FS gives registered models only ``cfg.model`` and the shape of the data. So the data
    function has written the head's sizes into ``cfg.model``: ``hidden``,
    ``out_channels`` and ``input_shape``. A server without data learns the sizes only
    when clients join. Its model is an empty module, which the worker replaces later.
    """
    if not input_shape:
        return nn.Module()
    settings = ModelSettings(model_config.hidden, model_config.dropout)
    return build_model(input_shape[-1], model_config.out_channels, settings)
