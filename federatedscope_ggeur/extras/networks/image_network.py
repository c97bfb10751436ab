"""A plain torch network as a `Model` on rows of pixels, and its settings.

Encoder ``image``: the resized image in bytes, for networks to train on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from federatedscope_ggeur.data.encoders.base import (
    Encoder,
    EncoderSettings,
    register_encoder,
)
from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.federation.exchanges.augmentation.keys import AugmentationKeys
from federatedscope_ggeur.models import (
    Model,
    OtherModel,
    StageHook,
    register_other_model,
)
from federatedscope_ggeur.models.vectors import norm_modules
from federatedscope_ggeur.settings import (
    Objection,
    Objections,
    check_returned,
    is_of_plugin,
)

from .base import (
    AUGMENTATIONS,
    Network,
    check_network,
    find_network,
    image_shape,
    put_norms,
)
from .keys import OWN, NetworkKeys
from .pretrained import load_weights

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


#: BatchNorm counts batches for a falling momentum. Here the momentum is fixed, and the
#: count is removed: with it, a module would remember the clients that used it.
_COUNTER = "num_batches_tracked"


@register_other_model(OWN)
class NetworkSettings(OtherModel, NetworkKeys):
    """The settings of an image network and of the preparation of its images.

    Attributes
    ----------
    name : str
        A name in `NETWORKS`, or ``timm:<model>``.
    stem : {"cifar", "imagenet"}
        The first layer of a ResNet: 3x3 without pooling ("cifar"), or 7x7 with stride 2
        and pooling ("imagenet").
    norm : {"batch", "layer", "group", "none"}
        The layers that replace the network's BatchNorm.
    mean, std : tuple of three float
        Means and standard deviations of the three channels, with pixels in 0..1. They
        normalise images. Images of one channel are normalised by their averages.
    augment : str
        The augmentation of training images, one of `inputs.AUGMENTATIONS`.
    weights : str
        The weights that training begins with: a file, the name of published weights, or
        "default". "" means random weights.
    precision : {"fp32", "tf32", "bf16"}
        The number format of convolutions and matrix products. "tf32" rounds their
        operands to 10 bits on a GPU, and does nothing on a CPU. "bf16" is torch's
        autocast, with 8 bits. Weights, sums and losses keep 32-bit floats.
    """

    takes_images: ClassVar[bool] = True

    @property
    def told(self) -> str:  # type: ignore[override]
        return f"network: {self.name}"

    @classmethod
    def of_run(cls, run: Any) -> NetworkSettings:
        return cls.of(run)

    def build(
        self, in_features: int, num_classes: int, dropout: float = 0.0
    ) -> ImageNetwork:
        return ImageNetwork(in_features, num_classes, self, dropout)

    @classmethod
    def objections(cls, run: Any) -> Objections:
        """Yield settings that conflict with a network, or that need a network.

        Whether rows in files are pixels is only known once they are read, see
        `federation.rows.check_rows`.
        """
        if not run.of(NetworkKeys).name:
            others = {key.name: [key.default] for key in NetworkKeys.declared()}
            yield Objection(OWN, others, "because it is for a network; name a network")
            if run.reads_images and run.of(EncoderSettings).name == PIXELS:
                why = "whose pixels are for networks; name one, or take another encoder"
                yield Objection("encoder.name", {OWN: []}, why)
            return
        if run.reads_images:
            pixels = {"encoder.name": [PIXELS]}
            yield Objection(OWN, pixels, "which is trained on pixels")
        if run.of(AugmentationKeys).augmentation == "ggeur":
            other = setting("augmentation")
            why = f"because GGEUR draws embeddings, not pixels; or take another {other}"
            yield Objection(OWN, {"steps": [[]]}, why)
        why = "because a closed form is computed from embeddings"
        yield Objection(OWN, {"closed_form": ["none"]}, why)
        yield Objection(OWN, {"mlp_hidden_dim": [0]}, "which has its own layers")
        yield Objection(OWN, {"train_withheld": [True]}, "which trains on all rows")


class ImageNetwork(Model):
    """A registered network as a model, with its stages and the preparation of pixels.

    The state dict is that of the plain network, without counts of batches. So plain
    torch loads the file of a trained network with ``strict=False``.

    Parameters
    ----------
    in_features : int
        The number D of pixels in a row, channel by channel: s x s, or three times that.
    num_classes : int
    settings : NetworkSettings
    dropout : float
        The share of units to drop, in [0, 1), for networks that have dropout.

    Raises
    ------
    ConfigError
        There is no such network, the network cannot take such images, or a library is
        missing.
    """

    uses_autograd = True
    takes_images = True
    chunk_rows = 64

    @property
    def lacks_pixels(self) -> str:  # type: ignore[override]
        name, encoder = setting(OWN), setting("encoder.name")
        return (
            f"{name}: a network trains on pixels, but the data are embeddings. Leave "
            f"{name} out, or set {encoder} to image and use a data set of images"
        )

    @property
    def norms_without_batches(self) -> str:  # type: ignore[override]
        return f"{setting('network.norm')} group"

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        settings: NetworkSettings,
        dropout: float = 0.0,
    ):
        super().__init__(in_features, num_classes)
        self.image = image_shape(in_features)
        self.settings, self.dropout = settings, dropout
        self.precision = settings.precision
        self._scales: dict[tuple[torch.device, bool], tuple[Tensor, Tensor]] = {}
        self._network = self._made(seed=0)
        if is_of_plugin(find_network(settings.name)):
            check_network(settings.name, self._network, self.image, num_classes)
        self.network = self._network.module
        self._augment = AUGMENTATIONS[settings.augment]

    def reset(self, generator: torch.Generator) -> Model:
        """Draw the weights as the network's own library does. Returns the model itself.

        If the settings name weights, they are loaded. Then only a last layer that does
        not fit them is drawn.

        Raises
        ------
        ConfigError
            Weights cannot be obtained, or do not fit.
        """
        made = self._made(int(torch.randint(2**62, (), generator=generator)))
        if self.settings.weights:
            load_weights(made, self.settings)
        self.network.load_state_dict(made.module.state_dict())
        return self

    def _made(self, seed: int) -> Network:
        settings, image = self.settings, self.image
        make = find_network(settings.name)
        with torch.random.fork_rng(devices=[]):
            # torch.manual_seed would seed GPUs, too.
            torch.default_generator.manual_seed(seed)
            made = make(image, self.num_classes, settings, self.dropout)
        check_returned(f"the network '{settings.name}'", make, made, Network)
        put_norms(made.module, settings.norm, settings.name)
        for layer in norm_modules(made.module):
            setattr(layer, _COUNTER, None)
        return made

    def _scale(self, device: torch.device, of_bytes: bool) -> tuple[Tensor, Tensor]:
        """Factor and summand [c, 1] of each channel, which normalise its pixels.

        They are kept on each device, because a copy would make a GPU wait.
        """
        if (device, of_bytes) not in self._scales:
            # Gradients may flow through images, and refuse tensors of inference mode.
            with torch.inference_mode(False):
                mean = self._of_channels(self.settings.mean)
                std = self._of_channels(self.settings.std)
                # (x - mean) / std in one pass. For a byte p, x is p / 255.
                scale, shift = 1 / std, -mean / std
                scale = scale / 255 if of_bytes else scale
                self._scales[device, of_bytes] = scale.to(device), shift.to(device)
        return self._scales[device, of_bytes]

    def _of_channels(self, values: tuple[float, ...]) -> Tensor:
        given = values if self.image.channels == 3 else [sum(values) / len(values)]
        return torch.tensor(given, dtype=torch.float32)[:, None]

    @property
    def classifier(self) -> nn.Linear:  # type: ignore[override]
        return self.network.get_submodule(self._network.classifier)  # type: ignore[return-value]

    @property
    def width(self) -> int:
        return self._network.width

    @property
    def stage_widths(self) -> tuple[int, ...]:
        return self._network.stage_widths

    def prepare(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Normalise rows [B, D] of pixels, uint8 or floats in 0..1.

        With a `generator`, that is in training, augment them first.
        """
        x = rows.reshape(len(rows), self.image.channels, self.image.side**2)
        if generator is not None and self._augment is not None and len(x):
            x = self._augment(self._images(_in_unit(x)), generator).view_as(x)
        scale, shift = self._scale(rows.device, of_bytes=x.dtype == torch.uint8)
        return torch.addcmul(shift, x.float(), scale).view(rows.shape)

    def _images(self, rows: Tensor) -> Tensor:
        return rows.view(-1, self.image.channels, self.image.side, self.image.side)

    def represent(self, features: Tensor) -> Tensor:
        return self._in_precision(self._network.represent, self._images(features))

    def classify(self, representation: Tensor) -> Tensor:
        return self._in_precision(self._network.classify, representation)

    def last_input(self, features: Tensor) -> Tensor:
        representation = self.represent(features)
        return self._in_precision(self._network.last_input, representation)

    def _in_precision(self, part, x: Tensor) -> Tensor:
        """The network's `part` on `x`. The result is float32, so losses are as well."""
        if self.precision != "bf16":
            return part(self.network, x)
        with torch.autocast(x.device.type, torch.bfloat16):
            return part(self.network, x).float()

    @contextmanager
    def stages_hooked(self, hook: StageHook | None) -> Iterator[None]:
        """Call ``hook(k, map [B, C_k, H, W])`` on the map of each stage k inside this
        block.

        The network goes on with the map that `hook` returns.

        Raises
        ------
        ConfigError
            There is a hook, but the network has no stages.
        """
        stages = self._network.stages
        if hook is None or not stages:
            with super().stages_hooked(hook):
                yield
            return
        handles = [
            self.network.get_submodule(name).register_forward_hook(
                partial(_hand_on, hook, k, self._network.channels_last)
            )
            for k, name in enumerate(stages)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def state_dict(self, *args, **kwargs):
        """The state dict of the plain network, without counts of batches."""
        return self.network.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict, *args, **kwargs):
        """Load a state dict into the plain network. Counts of batches are ignored."""
        held = OrderedDict(
            (name, t) for name, t in state_dict.items() if not name.endswith(_COUNTER)
        )
        # Without versions, BatchNorm would expect the counts.
        modules = self.network.named_modules()
        held._metadata = {name: {"version": m._version} for name, m in modules}  # type: ignore[attr-defined]
        return self.network.load_state_dict(held, *args, **kwargs)


def _in_unit(pixels: Tensor) -> Tensor:
    return pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels


def _hand_on(hook: StageHook, k: int, channels_last: bool, module, args, out: Tensor):
    maps = out.permute(0, 3, 1, 2) if channels_last else out
    if maps.dtype == torch.float32:
        maps = hook(k, maps)
    else:  # statistics of maps need the digits that bf16 lacks
        with torch.autocast(maps.device.type, enabled=False):
            maps = hook(k, maps.float()).to(maps.dtype)
    return maps.permute(0, 2, 3, 1) if channels_last else maps
