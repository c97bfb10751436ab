"""Encoder ``pixels``: the resized image as numbers, for tests and tiny experiments."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from .base import Encoder, EncoderSettings, register_encoder

_SIZE = 16


def _flatten(image: Image.Image, size: int) -> Tensor:
    small = image.resize((size, size), Image.BILINEAR)
    return torch.from_numpy(np.asarray(small, np.float32).reshape(-1) / 255)


@register_encoder("pixels", uses=("image_size", "normalize"))
def pixels(settings: EncoderSettings, device: torch.device) -> Encoder:
    """RGB values in [0, 1] of the image, resized to a square of 16 (`image_size`)."""
    size = settings.image_size or _SIZE
    return hand_made(
        settings,
        f"pixels of {size} x {size}",
        f"resize {size} x {size} bilinear, RGB in [0, 1]",
        partial(_flatten, size=size),
    )


def hand_made(settings: EncoderSettings, title: str, text: str, preprocess) -> Encoder:
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
