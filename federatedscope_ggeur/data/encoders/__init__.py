"""Encoders: from images to features (``ggeur.encoder``)."""

from federatedscope_ggeur.data.encoders import hog, open_clip, pixels, timm
from federatedscope_ggeur.data.encoders.base import (
    PRECISIONS,
    QUICK_GELU,
    Encoder,
    EncoderSettings,
    build_encoder,
    check_encoder,
    encoder_name,
    encoder_stamp,
    identity_hash,
    register_encoder,
    resolve,
)
from federatedscope_ggeur.data.encoders.model import pick_device

__all__ = [
    "PRECISIONS",
    "QUICK_GELU",
    "Encoder",
    "EncoderSettings",
    "build_encoder",
    "check_encoder",
    "encoder_name",
    "encoder_stamp",
    "hog",
    "identity_hash",
    "open_clip",
    "pick_device",
    "pixels",
    "register_encoder",
    "resolve",
    "timm",
]
