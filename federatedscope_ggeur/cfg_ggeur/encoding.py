"""Turn `cfg.ggeur.encoder` into settings of encoder, extraction and cache."""

from __future__ import annotations

import math

from federatedscope_ggeur.data import (
    ENCODERS,
    EncoderSettings,
    EncodingSettings,
    ExtractionSettings,
)
from federatedscope_ggeur.settings import NOT_SET

from .method_settings import options_of


def encoder_settings(ggeur) -> EncoderSettings:
    """The settings of the encoder in `cfg.ggeur`."""
    chosen = ggeur.encoder
    part = ENCODERS.get(chosen.name)
    alike = ("name", "model", "pretrained", "normalize", "precision", "quick_gelu")
    return EncoderSettings(
        **{name: chosen[name] for name in alike},
        decode=chosen.decode,
        grey_bits=int(chosen.grey_bits),
        image_size=_whole(chosen.image_size),
        options=options_of(part, ggeur) if part is not None else {},
    )


def encoding_settings(ggeur, auto: str = "auto") -> EncodingSettings:
    """The settings of encoder, extraction and cache in `cfg.ggeur`.

    `auto` names the device that ``ggeur.encoder.device: auto`` stands for.
    """
    chosen = ggeur.encoder
    return EncodingSettings(
        encoder_settings(ggeur),
        ExtractionSettings(
            batch_size=int(chosen.batch_size),
            num_workers=_whole(chosen.num_workers),
            num_threads=_whole(chosen.num_threads),
        ),
        device=auto if chosen.device == "auto" else chosen.device,
        cache=chosen.cache,
        float16=chosen.float16_cache,
        hash_files=chosen.hash_files,
        skip_unreadable=chosen.skip_unreadable,
    )


def _whole(value: float) -> int | None:
    # The key's rule refuses infinity later.
    return None if value == NOT_SET or not math.isfinite(value) else int(value)
