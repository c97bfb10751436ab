"""The three ways in which an image becomes an encoder's input (`ggeur.encoder.decode`).

- pillow: Pillow decodes and resizes. Everything else is compared with this.
- draft: Pillow decodes a JPEG at 1/2, 1/4 or 1/8 of its size, if that still has as many
  pixels as the encoder needs.
- gpu: torchvision decodes JPEGs, by nvJPEG on a GPU, and they are resized there.

Files that are no plain JPEGs, and images that share a file, are Pillow's in every way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from .encoders.base import Encoder
from .encoders.frames import Frame
from .images.files import GREY_BITS, load_image, plain_jpeg
from .images.layout import Loader

T = TypeVar("T")

#: What a device decodes, and what it resizes, at a time: photographs of any size fit.
_MOST_BYTES, _MOST_PIXELS = 64_000_000, 256_000_000


@dataclass(frozen=True)
class ImagePreparation:
    """The part of the way that needs no encoder. It can be sent to another process.

    Parameters
    ----------
    preprocess : callable (PIL image) -> Tensor
    decode : str
    frame : Frame or None
    grey_bits : int
        See `load_image`.
    """

    preprocess: Callable[[Image.Image], Any]
    decode: str = "pillow"
    frame: Frame | None = None
    grey_bits: int = GREY_BITS

    @classmethod
    def of(cls, encoder: Encoder) -> ImagePreparation:
        return cls(encoder.preprocess, encoder.decode, encoder.frame, encoder.grey_bits)

    def __call__(self, load: Loader, row: int) -> Any:
        """Prepare an image. With ``gpu`` it may be a file's bytes: uint8 [n]."""
        path, frame = getattr(load, "path", None), self.frame
        if path is None:
            return self.preprocess(load(row))
        if self.decode == "gpu" and frame is not None:
            data = plain_jpeg(path(row))
            if data is not None:
                return torch.from_numpy(np.frombuffer(bytearray(data), np.uint8))
        small = (frame.side, frame.resample) if self.decode == "draft" and frame else ()
        return self.preprocess(load_image(path(row), *small, grey_bits=self.grey_bits))


def decoded(
    encoder: Encoder, samples: Sequence[Any], again: Callable[[int], Any]
) -> list[Any]:
    """The samples that an `ImagePreparation` gave, with files decoded.

    `again` prepares the image at a place by Pillow, if nothing else can decode it.
    """
    frame, device = encoder.frame, encoder.device
    images = list(samples)
    if frame is None:
        return images
    are_files = [isinstance(one, Tensor) and one.dim() == 1 for one in samples]
    files = [row for row, is_file in enumerate(are_files) if is_file]
    for rows in _parts(files, [len(samples[row]) for row in files], _MOST_BYTES):
        # Images of one size are resized together.
        sizes: dict[Any, list[tuple[int, Tensor]]] = {}
        for row, image in zip(rows, _decoded([samples[row] for row in rows], device)):
            if image is None:
                images[row] = again(row)
            else:
                sizes.setdefault(image.shape, []).append((row, image))
        for shape, alike in sizes.items():
            for part in _parts(alike, [shape.numel()] * len(alike), _MOST_PIXELS):
                small = frame.small(torch.stack([image for _, image in part]))
                for (row, _), image in zip(part, small):
                    images[row] = image
    return images


def _parts(items: Sequence[T], sizes: Sequence[int], most: int) -> Iterator[list[T]]:
    """Divide `items` into parts whose sizes add up to `most`, or that are one item."""
    part: list[T] = []
    total = 0
    for item, size in zip(items, sizes):
        if part and total + size > most:
            yield part
            part, total = [], 0
        part.append(item)
        total += size
    if part:
        yield part


def _decoded(files: list[Tensor], device: torch.device) -> list[Tensor | None]:
    """Decode JPEG files: uint8 [3, h, w] on `device`; None for one that fails."""
    from torchvision.io import ImageReadMode, decode_jpeg

    try:
        return decode_jpeg(files, ImageReadMode.RGB, device=device)
    except RuntimeError:  # of one file, for all of them
        if len(files) == 1:
            return [None]
    return [_decoded([file], device)[0] for file in files]
