"""From a config to the settings of the encoder, and to embeddings beforehand."""

from __future__ import annotations

import math

from federatedscope_ggeur.cfg_ggeur.method_settings import options_of
from federatedscope_ggeur.data import (
    ENCODERS,
    Encoded,
    EncoderSettings,
    EncodingSettings,
    ExtractionSettings,
    embed_data,
    find_reader,
)
from federatedscope_ggeur.settings import NOT_SET


def encoder_settings(ggeur) -> EncoderSettings:
    """The encoder of `cfg.ggeur`."""
    chosen = ggeur.encoder
    part = ENCODERS.get(chosen.name)
    return EncoderSettings(
        name=chosen.name,
        model=chosen.model,
        pretrained=chosen.pretrained,
        normalize=chosen.normalize,
        precision=chosen.precision,
        quick_gelu=chosen.quick_gelu,
        image_size=_whole(chosen.image_size),
        options=options_of(part, ggeur) if part is not None else {},
    )


def encoding_settings(ggeur) -> EncodingSettings:
    """Encoder, extraction and cache of `cfg.ggeur`."""
    chosen = ggeur.encoder
    return EncodingSettings(
        encoder_settings(ggeur),
        ExtractionSettings(
            batch_size=int(chosen.batch_size),
            num_workers=_whole(chosen.num_workers),
            num_threads=_whole(chosen.num_threads),
        ),
        device=chosen.device,
        cache=chosen.cache,
        float16=chosen.float16_cache,
        hash_files=chosen.hash_files,
    )


def _whole(value: float) -> int | None:
    # Infinity is for the key's rule to refuse.
    return None if value == NOT_SET or not math.isfinite(value) else int(value)


def embed(cfg) -> Encoded:
    """Embed the images that `cfg.data` names, so that runs find them in the cache.

    Raises
    ------
    ConfigError, DataError
        As `embed_data`.
    """
    options = options_of(find_reader(cfg.data.type), cfg.ggeur)
    settings = encoding_settings(cfg.ggeur)
    return embed_data(cfg.data.type, cfg.data.root, settings, options)
