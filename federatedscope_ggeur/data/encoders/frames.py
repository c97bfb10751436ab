"""How torchvision's transforms prepare an image, in a part for bytes and one for
floats.

The part for bytes makes an image small: in a decoding process by Pillow, or on the
encoder's device. The part for floats normalises a whole batch on the encoder's device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from federatedscope_ggeur.machine import sent

#: Steps of open_clip's that do nothing, because images are RGB already.
_TO_RGB = ("_convert_to_rgb", "MaybeConvertMode")


@dataclass(frozen=True)
class Frame:
    """The two parts of a library's preparation of images.

    Parameters
    ----------
    shape : callable (PIL image) -> Tensor [3, s, s], uint8
    mean, std : tuple of float
        The channels' means and deviations, with pixels in 0..1.
    side : int
        The shorter side of an image after it was resized. 0 if images are made small in
        another way than by one `Resize` and one `CenterCrop`; then only `shape` can do
        it.
    interpolation : torchvision's InterpolationMode
        How it was resized.
    crop : (height, width)
    """

    shape: Callable[[Image.Image], Tensor]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    side: int = 0
    interpolation: Any = None
    crop: tuple[int, int] = (0, 0)

    @property
    def resample(self) -> int:
        """Pillow's name for `interpolation`."""
        return int(Image.Resampling[self.interpolation.name])

    def small(self, images: Tensor) -> Tensor:
        """Resize images [n, 3, h, w], uint8, with antialiasing, and cut out the centre.

        This is done on the images' device. The result [n, 3, s, s] differs from that of
        `shape` by rounding: Pillow rounds twice.
        """
        from torchvision.transforms import functional

        small = functional.resize(images, self.side, self.interpolation, antialias=True)
        return functional.center_crop(small, list(self.crop))

    def normalise(self, images: Tensor) -> Tensor:
        """Normalise uint8 images [n, 3, s, s]: float32.

        On a CPU the numbers are those of the library's own transforms, to the bit.
        """
        values = sent(torch.tensor([self.mean, self.std]), images.device)
        mean, std = values[..., None, None]
        return images.float().div_(255).sub_(mean).div_(std)


def frame_of(transform: Any) -> Frame | None:
    """The frame of a transform of torchvision's; None if it has other parts."""
    from torchvision import transforms

    steps = list(getattr(transform, "transforms", ()))
    if len(steps) < 2:
        return None
    *head, to_tensor, normalize = steps
    if not isinstance(to_tensor, transforms.ToTensor):
        return None
    if not isinstance(normalize, transforms.Normalize):
        return None
    shape = transforms.Compose(
        [*head, transforms.PILToTensor(), torch.Tensor.contiguous]
    )
    mean, std = (tuple(map(float, v)) for v in (normalize.mean, normalize.std))
    acting = [step for step in head if _name(step) not in _TO_RGB]
    kinds = [type(step) for step in acting]
    if kinds != [transforms.Resize, transforms.CenterCrop]:
        return Frame(shape, mean, std)
    resize, crop = acting
    if not isinstance(resize.size, int) or resize.max_size is not None:
        return Frame(shape, mean, std)
    return Frame(shape, mean, std, resize.size, resize.interpolation, tuple(crop.size))


def _name(step: Any) -> str:
    return getattr(step, "__name__", type(step).__name__)
