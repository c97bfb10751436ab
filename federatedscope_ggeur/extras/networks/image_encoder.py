"""Encoder ``image``: the resized image in bytes, for networks to train on."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from federatedscope_ggeur.data.encoders.base import (
    Encoder,
    EncoderSettings,
    register_encoder,
)

#: The encoder whose rows are pixels.
PIXELS = "image"
_SIZE = 32


def _channels_first(image: Image.Image, size: int, mode: str) -> Tensor:
    # When Pillow makes an image smaller, its bilinear filter averages over all pixels.
    small = image.convert(mode).resize((size, size), Image.BILINEAR)  # type: ignore[attr-defined]
    values = np.array(small, np.uint8).reshape(size, size, -1)
    return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))


@register_encoder(PIXELS, uses=("image_size",), asks_grey=True)
def image(settings: EncoderSettings, device: torch.device, grey: bool) -> Encoder:
    """The image itself, in bytes, resized to a square of 32 (`image_size`) pixels.

    Networks train on these features. Resizing is bilinear with antialiasing. Images are
    RGB, or grey if the whole data set is grey. A row of features holds the pixels
    channel by channel, and each channel row by row.
    """
    size = settings.image_size or _SIZE
    mode, colours = ("L", "grey") if grey else ("RGB", "RGB")
    shape = (len(mode), size, size)
    return Encoder(
        title=f"image of {size} x {size}, {colours}",
        identity={
            "preprocess": f"{colours}, resize {size} x {size} bilinear, bytes, "
            "channels first"
        },
        dim=len(mode) * size * size,
        preprocess=partial(_channels_first, size=size, mode=mode),
        encode=partial(torch.flatten, start_dim=1),
        image_shape=shape,
    )
