"""Encoder ``hog``: histograms of oriented gradients, for tests and tiny experiments."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError

from .base import Encoder, EncoderSettings, register_encoder
from .pixels import hand_made

_SIZE, _CELL, _BLOCK = 64, 8, 2


def _histograms(image: Image.Image, size: int) -> Tensor:
    # Imported here, because it is slow to import and other encoders do not need it.
    from skimage.feature import hog as histograms

    grey = image.convert("L").resize((size, size), Image.BILINEAR)
    features = histograms(
        np.asarray(grey, np.float64) / 255,
        orientations=9,
        pixels_per_cell=(_CELL, _CELL),
        cells_per_block=(_BLOCK, _BLOCK),
        transform_sqrt=True,
    )
    return torch.from_numpy(features.astype(np.float32))


@register_encoder("hog", uses=("image_size", "normalize"))
def hog(settings: EncoderSettings, device: torch.device) -> Encoder:
    """HOG of the grey image, resized to a square of 64 (`image_size`) pixels."""
    size = settings.image_size or _SIZE
    if size < _CELL * _BLOCK:
        raise ConfigError(
            f"ggeur.encoder.image_size: hog needs {_CELL * _BLOCK} pixels or more, "
            f"got {size}"
        )
    return hand_made(
        settings,
        f"hog of {size} x {size}",
        f"grey, resize {size} x {size} bilinear, square root, 9 orientations, "
        f"cells of {_CELL}, blocks of {_BLOCK}",
        partial(_histograms, size=size),
    )
