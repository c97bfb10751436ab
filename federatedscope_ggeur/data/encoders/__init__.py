"""Encoders, which turn images into features. All modules here are imported."""

from federatedscope_ggeur.extras import parts_of
from federatedscope_ggeur.settings import import_modules

from .base import (
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
from .torch_models import pick_device

import_modules(__name__, __path__)
ENCODERS.expect(parts_of("encoder.name"))
