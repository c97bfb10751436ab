"""Encoders, from images to features; every module of this folder is imported."""

from importlib import import_module
from pkgutil import iter_modules

from federatedscope_ggeur.data.encoders.base import (
    ENCODERS,
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

for _name in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_name}")

__all__ = [
    "ENCODERS",
    "Encoder",
    "EncoderSettings",
    "build_encoder",
    "check_encoder",
    "encoder_name",
    "encoder_stamp",
    "identity_hash",
    "pick_device",
    "register_encoder",
    "resolve",
]
