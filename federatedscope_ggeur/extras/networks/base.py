"""The definition of an image network, and the registry of networks.

Prepare pixels for a network: augment them in training, then normalise them.

Everything is a tensor operation on a batch, with draws from one generator on the CPU.
So every engine has the same numbers, and training needs no worker processes.

Replace the BatchNorm layers of a network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from federatedscope_ggeur.errors import ConfigError, PluginError, setting
from federatedscope_ggeur.machine import sent
from federatedscope_ggeur.settings import place_of
from federatedscope_ggeur.settings.registry import registered

from .keys import NETWORKS, OWN

if TYPE_CHECKING:
    from .image_network import NetworkSettings


@dataclass(frozen=True)
class ImageShape:
    """The channels and the side of a square image.

    Attributes
    ----------
    channels : int
        1 or 3.
    side : int
        The number of pixels of a side.
    dim : int
        The number of pixels in all channels.
    """

    channels: int
    side: int

    @property
    def dim(self) -> int:
        """The number of pixels in all channels, the length of a row."""
        return self.channels * self.side**2


def image_shape(dim: int) -> ImageShape:
    """The shape of square images whose rows have `dim` numbers.

    Images have one or three channels. No `dim` fits both.

    Raises
    ------
    ConfigError
        Rows of that length hold no square image.
    """
    for channels in (1, 3):
        side = math.isqrt(dim // channels)
        if side and channels * side**2 == dim:
            return ImageShape(channels, side)
    raise ConfigError(
        f"{setting(OWN)}: rows of {dim} numbers are no square images of one "
        f"or three channels; set {setting('encoder.name')} image to get such rows"
    )


@dataclass(frozen=True)
class Network:
    """A plain torch module, and the places in it of a `Model`'s parts.

    The functions take the module as an argument, because the module may be copied.

    Attributes
    ----------
    module : Module
        The module that maps images [B, c, h, w] to logits [B, C].
    width : int
        D', the number of columns of a representation.
    classifier : str
        The name of the last layer, a `torch.nn.Linear`.
    represent : callable (module, images) -> Tensor of shape (B, D')
        Gives the representation of images [B, c, h, w], which loss terms act on. By
        default this is the module's own `represent`.
    classify : callable (module, representation) -> Tensor of shape (B, C)
        Gives the logits of a representation. By default this is the module's own
        `classify`.
    last_input : callable (module, representation) -> Tensor of shape (B, D'')
        Gives the input of the last layer, without dropout.
    stages : tuple of str
        The names of the modules whose outputs are the maps of the stages.
    stage_widths : tuple of int
        The number of channels of each of these maps.
    channels_last : bool
        Whether the maps have the shape [B, H, W, C].
    published : callable (settings) -> state dict
        Returns the weights that the network's library publishes as
        ``settings.weights``. "default" stands for the best ones. The last layer may be
        missing.
    """

    module: nn.Module
    width: int
    classifier: str
    represent: Callable[[Any, Tensor], Tensor] = lambda module, x: module.represent(x)
    classify: Callable[[Any, Tensor], Tensor] = lambda module, z: module.classify(z)
    last_input: Callable[[Any, Tensor], Tensor] = lambda module, z: z
    stages: tuple[str, ...] = ()
    stage_widths: tuple[int, ...] = ()
    channels_last: bool = False
    published: Callable[[NetworkSettings], Mapping[str, Tensor]] | None = None


class TwoPart(nn.Module):
    """A module whose subclasses define `represent` and `classify`."""

    represent: Callable[[Tensor], Tensor]
    classify: Callable[[Tensor], Tensor]

    def forward(self, images: Tensor) -> Tensor:
        return self.classify(self.represent(images))


#: (image, classes, settings, dropout) -> Network, with weights drawn by the library.
Make = Callable[[ImageShape, int, "NetworkSettings", float], Network]
_TAKES = ("image", "num_classes", "settings", "dropout")


def register_network(
    name: str, meaning: str = "", source: str = ""
) -> Callable[[Make], Make]:
    """Decorator: register a function that makes the network ``ggeur.network.name:
    <name>``.

    The function is called as ``make(image, num_classes, settings, dropout)``. Its
    arguments are an `ImageShape`, the number C of classes, `NetworkSettings` and the
    share of units to drop. It returns a `Network`: a module that maps images [B, c, h,
    w], float32, to logits [B, C], and the names of its parts.

    Parameters
    ----------
    name : str
    meaning, source : str
        A line that describes the network, and who published it, for the tables of the
        docs.

    Raises
    ------
    TypeError
        The decorated object is no function, or has other arguments.
    ValueError
        The name is taken.

    Examples
    --------
    >>> @register_network("one_layer")
    ... def one_layer(image, num_classes, settings, dropout):
    ...     fc = nn.Linear(image.dim, num_classes)
    ...     return Network(
    ...         nn.Sequential(OrderedDict(flat=nn.Flatten(), fc=fc)),
    ...         width=image.dim,
    ...         classifier="fc",
    ...         represent=lambda module, images: module.flat(images),
    ...         classify=lambda module, representation: module.fc(representation),
    ...     )
    """
    return registered(NETWORKS, name, (), _TAKES, meaning=meaning, source=source)


def find_network(name: str) -> Make:
    """The function that makes the network `name`. Unknown names are a `ConfigError`."""
    return NETWORKS.find(name.partition(":")[0])


def check_side(name: str, image: ImageShape, least: int) -> None:
    """Refuse images that are too small for a network.

    Raises
    ------
    ConfigError
        The side of the images is below `least` pixels.
    """
    if image.side < least:
        raise ConfigError(
            f"{setting(OWN)}: {name} needs images of {least} x {least} "
            f"pixels at least, got {image.side} x {image.side}; set "
            f"{setting('encoder.image_size')} to {least}, or take another network"
        )


def check_network(
    name: str, network: Network, image: ImageShape, num_classes: int
) -> None:
    """Refuse a user's own network if its parts do not fit together.

    Raises
    ------
    PluginError
        The network names a part that its module lacks, or an output has a wrong shape.
    """
    whose = f"the network '{name}' ({place_of(find_network(name))})"
    module = network.module.eval()
    known = dict(module.named_modules())
    for part in (network.classifier, *network.stages):
        if part not in known:
            raise PluginError(
                f"{whose} names the part '{part}', which its module does not have; the "
                f"parts are {', '.join(filter(None, known)) or 'none'}"
            )
    if not isinstance(known[network.classifier], nn.Linear):
        raise PluginError(f"{whose}: its classifier must be a torch.nn.Linear")
    images = torch.zeros(2, image.channels, image.side, image.side)
    with torch.no_grad():
        representation = network.represent(module, images)
        logits = network.classify(module, representation)
    for what, output, columns in (
        ("represent", representation, network.width),
        ("classify", logits, num_classes),
    ):
        if tuple(output.shape) != (2, columns):
            raise PluginError(
                f"{whose}: its {what} must give shape (2, {columns}) for two images, "
                f"but gives {tuple(output.shape)}"
            )
    module.train()


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


_GROUPS = 32
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


def put_norms(module: nn.Module, kind: str, name: str) -> None:
    """Replace all BatchNorm layers of a network by layers of another `kind`.

    `kind` is "batch", "layer", "group" or "none". "layer" normalises all numbers of a
    row together. "group" normalises groups of channels. There are 32 groups, or the
    largest smaller number that divides the channels.

    Raises
    ------
    ConfigError
        The network `name` has no BatchNorm layers, or has some that do more than
        normalise.
    """
    norms = [
        (parent, child, layer)
        for parent in module.modules()
        for child, layer in parent.named_children()
        if isinstance(layer, _BATCH_NORMS)
    ]
    if kind == "batch" or (kind == "none" and not norms):
        return
    if not norms or any(type(layer) not in _BATCH_NORMS for *_, layer in norms):
        raise ConfigError(
            f"{setting('network.norm')}: {name} has no plain BatchNorm layers to "
            "replace; leave the key at batch, which keeps the network's own layers"
        )
    for parent, child, layer in norms:
        setattr(parent, child, _norm(kind, layer.num_features))


def _norm(kind: str, channels: int) -> nn.Module:
    if kind == "none":
        return nn.Identity()
    groups = 1
    if kind == "group":
        groups = max(g for g in range(1, _GROUPS + 1) if channels % g == 0)
    return nn.GroupNorm(groups, channels)
