"""Encoders, which turn images into features. All modules here are imported."""

from federatedscope_ggeur.data.encoders.base import (
    ENCODERS,
    Encoder,
    EncoderSettings,
    build_encoder,
    build_encoder_called,
    check_encoder,
    encoder_stamp,
    identity_hash,
    register_encoder,
    resolve,
)
from federatedscope_ggeur.data.encoders.model import pick_device
from federatedscope_ggeur.settings import import_modules

import_modules(__name__, __path__)
