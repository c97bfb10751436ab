"""The definition of an image network, and the registry of networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from federatedscope_ggeur.errors import ConfigError, PluginError, setting
from federatedscope_ggeur.settings import check_function, place_of

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

    def register(make: Make) -> Make:
        check_function(f"the network '{name}'", make, _TAKES)
        make.SETTINGS = ()  # type: ignore[attr-defined]
        make.meaning, make.source = meaning, source  # type: ignore[attr-defined]
        return NETWORKS.add(name, make)

    return register


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
