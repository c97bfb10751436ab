"""What an image network is, and the table of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from federatedscope_ggeur.errors import ConfigError, PluginError, setting
from federatedscope_ggeur.settings import Registry, check_function, place_of

STEMS = ("cifar", "imagenet")
NORMS = ("batch", "layer", "group", "none")


@dataclass(frozen=True)
class NetworkSettings:
    """Which network, and how images are prepared for it.

    Attributes
    ----------
    name : str
        In `NETWORKS`, or ``timm:<model>``.
    stem : {"cifar", "imagenet"}
        How a ResNet begins: 3x3 without pooling, or 7x7 with stride 2 and pooling.
    norm : {"batch", "layer", "group", "none"}
        The layers that replace the network's BatchNorm.
    mean, std : tuple of three float
        Means and deviations of the channels, with pixels in 0..1. Images are normalised
        by them; those of one channel by their averages.
    augment : str
        One of `inputs.AUGMENTATIONS`, for training only.
    weights : str
        The weights that training begins with: a file, or the name of published weights,
        or "default"; "" for random ones.
    """

    name: str
    stem: str = "cifar"
    norm: str = "batch"
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    augment: str = "none"
    weights: str = ""


@dataclass(frozen=True)
class ImageShape:
    """Channels and the side of a square image.

    Attributes
    ----------
    channels : int
        1 or 3.
    side : int
        Pixels of a side.
    dim : int
        Numbers in a row of its pixels, channel by channel.
    """

    channels: int
    side: int

    @property
    def dim(self) -> int:
        """Numbers in a row of its pixels, channel by channel."""
        return self.channels * self.side**2


def image_shape(dim: int) -> ImageShape:
    """The shape of images of `dim` pixels: one or three channels of s x s. No `dim`
    fits both.

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
        f"{setting('network.name')}: rows of {dim} numbers are no square images of one "
        f"or three channels; {setting('encoder.name')} image makes such"
    )


@dataclass(frozen=True)
class Network:
    """A plain torch module, and where in it the parts of a `Model` are.

    Copies are made of the module, so the functions take it as an argument.

    Attributes
    ----------
    module : Module
        It maps images [B, c, h, w] to logits [B, C].
    width : int
        D', the columns of a representation.
    classifier : str
        The name of the last layer, a `torch.nn.Linear`.
    represent : callable (module, images) -> Tensor of shape (B, D')
        The representation of images [B, c, h, w]. Loss terms act on it. By default the
        module's own `represent`.
    classify : callable (module, representation) -> Tensor of shape (B, C)
        The logits of a representation; by default the module's own `classify`.
    last_input : callable (module, representation) -> Tensor of shape (B, D'')
        The input of the last layer, without dropout.
    stages : tuple of str
        Names of the modules whose outputs are the maps of the stages.
    stage_widths : tuple of int
        The channels of these maps.
    channels_last : bool
        Whether the maps are [B, H, W, C].
    published : callable (settings) -> state dict
        The weights that its library publishes as ``settings.weights``; "default" stands
        for the best. The last layer may be missing.
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
Make = Callable[[ImageShape, int, NetworkSettings, float], Network]
_TAKES = ("image", "num_classes", "settings", "dropout")

#: The networks by name. A network itself interprets what follows a colon.
NETWORKS: Registry[Make] = Registry("network", "network.name")


def register_network(
    name: str, meaning: str = "", source: str = ""
) -> Callable[[Make], Make]:
    """Decorator: the function makes the network of ``ggeur.network.name: <name>``.

    It is called as ``make(image, num_classes, settings, dropout)`` with an
    `ImageShape`, the number C of classes, `NetworkSettings` and the share of units to
    drop. It returns a `Network`: a module that maps images [B, c, h, w], float32, to
    logits [B, C], and the names of its parts.

    Parameters
    ----------
    name : str
    meaning, source : str
        A line that describes it, and who published it, for the tables of the docs.

    Raises
    ------
    TypeError
        It is no function, or has other arguments.
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

    def register(make: Make) -> Make:
        check_function(f"the network '{name}'", make, _TAKES)
        make.SETTINGS = ()  # type: ignore[attr-defined]
        make.meaning, make.source = meaning, source  # type: ignore[attr-defined]
        return NETWORKS.add(name, make)

    return register


def find_network(name: str) -> Make:
    """The function that makes the network called `name`; a `ConfigError` if none
    does."""
    return NETWORKS.find(name.partition(":")[0])


def check_side(name: str, image: ImageShape, least: int) -> None:
    """Refuse images that are too small for a network.

    Raises
    ------
    ConfigError
    """
    if image.side < least:
        raise ConfigError(
            f"{setting('network.name')}: {name} needs images of {least} x {least} "
            f"pixels at least, got {image.side} x {image.side}; set "
            f"{setting('encoder.image_size')} {least} or take another network"
        )


def check_network(
    name: str, network: Network, image: ImageShape, num_classes: int
) -> None:
    """Refuse a user's own network whose parts do not fit together.

    Raises
    ------
    PluginError
        It names a part that its module lacks, or an output has another shape.
    """
    whose = f"the network '{name}' ({place_of(find_network(name))})"
    module = network.module.eval()
    known = dict(module.named_modules())
    for part in (network.classifier, *network.stages):
        if part not in known:
            raise PluginError(
                f"{whose} names the part '{part}', which its module does not have; it "
                f"has {', '.join(filter(None, known)) or 'none'}"
            )
    if not isinstance(known[network.classifier], nn.Linear):
        raise PluginError(f"{whose}: its classifier must be a torch.nn.Linear")
    images = torch.zeros(2, image.channels, image.side, image.side)
    with torch.no_grad():
        representation = network.represent(module, images)
        logits = network.classify(module, representation)
    for what, found, columns in (
        ("represent", representation, network.width),
        ("classify", logits, num_classes),
    ):
        if tuple(found.shape) != (2, columns):
            raise PluginError(
                f"{whose}: its {what} must give shape (2, {columns}) for two images, "
                f"but gives {tuple(found.shape)}"
            )
    module.train()
