"""Prepare pixels for a network: augment them in training, then normalise them.

Everything is a tensor operation on a batch, with draws from one generator on the CPU.
So every engine has the same numbers, and training needs no worker processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from federatedscope_ggeur.machine import sent

#: Takes images [B, c, s, s] of floats in 0..1 and a generator; returns changed images.
Augmentation = Callable[[Tensor, Generator], Tensor]

_PAD = 4
_DEGREES = 30.0
_SCALE = (0.7, 1.0)
_LOG_RATIO = (math.log(3 / 4), math.log(4 / 3))
_JITTER, _GREY = 0.4, 0.1
#: Shares of red, green and blue in the brightness of a colour (ITU-R 601).
_LUMA = (0.299, 0.587, 0.114)


def crop_flip(images: Tensor, generator: Generator) -> Tensor:
    """Move each image by up to 4 pixels in both directions, and mirror half of them.

    Margins are black. Each image is mirrored with probability 1/2.
    """
    size, channels, side, _ = images.shape
    down, right = torch.randint(2 * _PAD + 1, (2, size), generator=generator)
    flipped = _coins(size, 0.5, generator).long()
    wide = side + 2 * _PAD
    # Few numbers go to the device. There they become places in the padded image.
    drawn = torch.stack([down * wide, right + flipped * (side - 1), 1 - 2 * flipped])
    first_row, first_column, step = sent(drawn, images.device)[:, :, None]
    line = torch.arange(side, device=images.device)
    rows = torch.add(first_row, line, alpha=wide)
    columns = torch.addcmul(first_column, step, line)
    at = (rows[:, :, None] + columns[:, None, :]).view(size, 1, side**2)
    padded = F.pad(images, (_PAD,) * 4).view(size, channels, wide**2)
    return padded.gather(2, at.expand(-1, channels, -1)).view_as(images)


def flip_rotate(images: Tensor, generator: Generator) -> Tensor:
    """Mirror each image with probability 1/2, and turn it by up to 30 degrees.

    Images are turned to either side, by bilinear interpolation. The margins are black.
    """
    size = len(images)
    sign = 1 - 2 * _coins(size, 0.5, generator).float()
    angle = math.radians(_DEGREES) * _uniform(size, -1, 1, generator)
    cos, sin = angle.cos(), angle.sin()
    zero = torch.zeros(size)
    return _warped(images, (sign * cos, -sign * sin, zero), (sin, cos, zero))


def resized_crop(images: Tensor, generator: Generator) -> Tensor:
    """Enlarge a random part of each image to the whole, mirror it, and change its
    colours.

    The part has 70 to 100 % of the image's area, and its sides have a ratio from 3:4 to
    4:3. Interpolation is bilinear. The image is mirrored with probability 1/2. Factors
    in 0.6..1.4 change brightness, contrast and saturation. With probability 1/10 the
    image becomes grey.
    """
    size = len(images)
    area = _uniform(size, *_SCALE, generator)
    ratio = _uniform(size, *_LOG_RATIO, generator).exp()
    width = (area * ratio).sqrt().clamp(max=1)
    height = (area / ratio).sqrt().clamp(max=1)
    # The part's centre, with the image at -1..1.
    x = (1 - width) * _uniform(size, -1, 1, generator)
    y = (1 - height) * _uniform(size, -1, 1, generator)
    sign = 1 - 2 * _coins(size, 0.5, generator).float()
    zero = torch.zeros(size)
    part = (sign * width, zero, x), (zero, height, y)
    images = _warped(images, *part, outside="border")
    return _recoloured(images, generator)


#: The augmentations of training images by name.
AUGMENTATIONS: dict[str, Augmentation | None] = {
    "none": None,
    "crop_flip": crop_flip,
    "flip_rotate": flip_rotate,
    "resized_crop": resized_crop,
}


def _warped(
    images: Tensor, *rows: tuple[Tensor, Tensor, Tensor], outside: str = "zeros"
) -> Tensor:
    """Warp images by an affine map of the square -1..1.

    `rows` are the two rows of the map [2, 3]. The map says where each pixel comes from.
    """
    maps = torch.stack([torch.stack(row, dim=1) for row in rows], dim=1)
    grid = F.affine_grid(
        sent(maps, images.device), list(images.shape), align_corners=False
    )
    return F.grid_sample(images, grid, padding_mode=outside, align_corners=False)


def _recoloured(images: Tensor, generator: Generator) -> Tensor:
    size, channels = images.shape[:2]
    factors = [_uniform(size, 1 - _JITTER, 1 + _JITTER, generator) for _ in range(3)]
    drawn = torch.stack([*factors, _coins(size, _GREY, generator).float()])
    bright, contrast, colour, to_grey = sent(drawn, images.device).view(4, -1, 1, 1, 1)
    images = (images * bright).clamp(0, 1)
    mean = _grey(images).mean(dim=(2, 3), keepdim=True)
    images = (mean + contrast * (images - mean)).clamp(0, 1)
    if channels == 1:
        return images
    grey = _grey(images)
    images = (grey + colour * (images - grey)).clamp(0, 1)
    return torch.where(to_grey > 0, grey, images)


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    return red * _LUMA[0] + green * _LUMA[1] + blue * _LUMA[2]


def _uniform(size: int, low: float, high: float, generator: Generator) -> Tensor:
    return low + (high - low) * torch.rand(size, generator=generator)


def _coins(size: int, probability: float, generator: Generator) -> Tensor:
    return torch.rand(size, generator=generator) < probability
