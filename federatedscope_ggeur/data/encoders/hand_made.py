"""Encoders without weights, ``hog`` and ``pixels``: for tests and tiny experiments."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError

from .base import Encoder, EncoderSettings, register_encoder

_HOG_SIZE, _PIXELS_SIZE = 64, 16
_CELL, _BLOCK = 8, 2


@register_encoder("hog", uses=("image_size", "normalize"))
def hog(settings: EncoderSettings, device: torch.device) -> Encoder:
    """HOG of the grey image, resized to a square of 64 (`image_size`) pixels."""
    size = settings.image_size or _HOG_SIZE
    if size < _CELL * _BLOCK:
        raise ConfigError(
            f"ggeur.encoder.image_size: hog needs {_CELL * _BLOCK} pixels or more, "
            f"got {size}"
        )
    return _hand_made(
        settings,
        f"hog of {size} x {size}",
        f"grey, resize {size} x {size} bilinear, square root, 9 orientations, "
        f"cells of {_CELL}, blocks of {_BLOCK}",
        partial(_histograms, size=size),
    )


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


@register_encoder("pixels", uses=("image_size", "normalize"))
def pixels(settings: EncoderSettings, device: torch.device) -> Encoder:
    """RGB values in [0, 1] of the image, resized to a square of 16 (`image_size`)."""
    size = settings.image_size or _PIXELS_SIZE
    text = f"resize {size} x {size} bilinear, RGB in [0, 1]"
    preprocess = partial(_flatten, size=size)
    return _hand_made(settings, f"pixels of {size} x {size}", text, preprocess)


def _flatten(image: Image.Image, size: int) -> Tensor:
    small = image.resize((size, size), Image.BILINEAR)
    return torch.from_numpy(np.asarray(small, np.float32).reshape(-1) / 255)


def _hand_made(settings: EncoderSettings, title: str, text: str, preprocess) -> Encoder:
    """Make an encoder whose `preprocess` alone computes the features.

    It runs in the data-loading processes.
    """
    normalize = settings.normalize

    def encode(batch: Tensor) -> Tensor:
        return torch.nn.functional.normalize(batch, dim=1) if normalize else batch

    return Encoder(
        title=title + (", normalised" if normalize else ""),
        identity={"preprocess": text, "normalize": normalize},
        dim=len(preprocess(Image.new("RGB", (8, 8)))),
        preprocess=preprocess,
        encode=encode,
    )
