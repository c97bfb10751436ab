"""``model.type: ggeur_head`` in FederatedScope."""

from __future__ import annotations

from torch import nn

from federatedscope_ggeur.heads import HeadSettings, build_head

MODEL = "ggeur_head"


def build_model(model_config, input_shape) -> nn.Module | None:
    """The head that ``cfg.model`` describes; None for another ``model.type``.

    FS gives registered models ``cfg.model`` and the shape of the data alone. So the
    data function has written the head's sizes there: ``hidden``, ``out_channels`` and
    ``input_shape``. On a server without data they are unknown until clients join; it
    gets an empty module, in whose place the worker puts the head.
    """
    if model_config.type.lower() != MODEL:
        return None
    if not input_shape:
        return nn.Module()
    settings = HeadSettings(model_config.hidden, model_config.dropout)
    return build_head(input_shape[-1], model_config.out_channels, settings)
