"""The definition of an encoder, and the registry for ``ggeur.encoder.name``.

The keys are `ggeur.encoder.*`. Weights files that a key names are read safely.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, PluginError
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.settings import (
    Key,
    Registry,
    Section,
    check_returned,
    key,
    one_of,
    where_of,
    whole,
)
from federatedscope_ggeur.settings.registry import filled_in, registered

from ..images.files import GREY_BITS
from .frames import Frame

logger = get_logger(__name__)


class EncoderSettings(Section):
    """The settings of an encoder that its features depend on.

    Parameters
    ----------
    name : str
        The name of a registered encoder: open_clip, timm, hog, pixels, image, or
        one of your own.
    model : str
        The encoder's model. "" stands for its default.
    pretrained : str
        The weights: a tag that the encoder knows, a local file, or "none" for random
        weights, which are always the same. "" stands for the default.
    normalize : bool
        Whether to scale every feature vector to Euclidean length 1.
    precision : str
        The arithmetic: fp32, or bf16 or fp16 by autocast (fp16 only on a GPU).
    quick_gelu : str
        Whether the weights were trained with the QuickGELU activation: with, without,
        or auto (detected).
    image_size : int or None
        The side, in pixels, of the square that images are resized to. None stands for
        the encoder's default.
    decode : str
        How JPEG files become images: pillow, draft or gpu, see `decoding`.
    grey_bits : int
        The bits of 16-bit grey images, see `load_image`.
    options : mapping
        The encoder's own settings by name. Missing ones have their defaults. If
        features depend on a setting, it must be part of `Encoder.identity`.
    """

    PREFIX = "encoder."

    name: str = key(
        "open_clip",
        "Encoder of the images: open_clip, timm, hog, pixels or one of your own. image "
        "keeps the pixels, for a network that is trained on them.",
    )
    model: str = key(
        "", "The encoder's model; '': ViT-B-16 for open_clip. timm needs a model."
    )
    pretrained: str = key(
        "",
        "Weights of the encoder: a tag, a file (.safetensors or a state dict), or "
        "none for random ones; '': openai for open_clip, the model's own for timm.",
    )
    normalize: bool = key(
        False,
        "True: scale every embedding to length 1. False: keep the model's length, "
        "about 10 for CLIP.",
    )
    precision: str = key(
        "fp32",
        "Number format that the encoder computes in: fp32, bf16 or (GPU only) fp16.",
        one_of("fp32", "bf16", "fp16"),
    )
    quick_gelu: str = key(
        "auto",
        "Whether the open_clip weights were trained with QuickGELU: with, without, or "
        "auto, which finds it out.",
        one_of("auto", "with", "without"),
    )
    image_size: int | None = key(
        None,
        "hog, pixels and image: side, in pixels, of the square that images are "
        "resized to; -1: 64, 16 and 32.",
        whole(1, not_set_allowed=True, maximum=4096),
    )
    decode: str = key(
        "pillow",
        "How JPEG photographs are decoded for open_clip and timm: pillow; draft "
        "(Pillow, at a half, quarter or eighth of their size where that suffices; "
        "faster) or gpu (nvJPEG; fastest). Embeddings differ a little.",
        one_of("pillow", "draft", "gpu"),
    )
    grey_bits: int = key(
        GREY_BITS,
        "Bits of grey images in 16-bit files: 12 for many scanners and cameras, whose "
        "images are nearly black otherwise.",
        whole(8, maximum=16),
    )
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, eq=False)
class Encoder:
    """A function with a name that turns images into features.

    Parameters
    ----------
    title : str
        A description for people, in one line.
    identity : mapping of str to plain values
        Everything that the features depend on, e.g. model, hash of the weights,
        preprocessing, precision. Encoders with equal identities give equal features up
        to rounding.
    dim : int
        D, the length of a feature vector.
    preprocess : callable (PIL image of mode RGB) -> Tensor
        Prepares one image. All results have the same shape. It runs in data-loading
        processes, so it must not use a GPU.
    encode : callable (Tensor [B, ...] on the CPU) -> Tensor [B, D] of `dtype`
        Computes the features of a batch. The result may be on `device`.
    device : torch.device
        The device on which `encode` computes.
    image_shape : (channels, height, width) or None
        The shape of images, if the features are their uint8 pixels. None for
        embeddings.
    both_sides : object
        The whole model, if it has a text side beside the image side; else None.
    frame : Frame or None
        How images are made small, if this can be done in another way than by
        `preprocess`.
    decode : str
        How JPEG files become images: pillow, draft or gpu, see `decoding`.
    grey_bits : int
        The bits of 16-bit grey images, see `load_image`.
    """

    title: str
    identity: Mapping[str, object]
    dim: int
    preprocess: Callable[[Image.Image], Tensor]
    encode: Callable[[Tensor], Tensor]
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    image_shape: tuple[int, int, int] | None = None
    both_sides: Any = None
    frame: Frame | None = None
    decode: str = "pillow"
    grey_bits: int = GREY_BITS

    @property
    def dtype(self) -> torch.dtype:
        """The type of the features: uint8 if they are pixels, else float32."""
        return torch.float32 if self.image_shape is None else torch.uint8

    @property
    def name(self) -> str:
        """A name in one line. Encoders with another identity have another name."""
        return f"{self.title}, id {identity_hash(self.identity)[:12]}"


def identity_hash(identity: Mapping[str, object]) -> str:
    """SHA-256 of an identity, in hexadecimal digits."""
    text = json.dumps(identity, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


Make = Callable[..., Encoder]
Stamp = Callable[[EncoderSettings], Mapping[str, "str | None"]]
Places = Callable[[EncoderSettings], Sequence[str]]
ENCODERS: Registry[Make] = Registry(
    "encoder",
    "ggeur.encoder.name",
    removed={"run": "register an encoder of your own that loads the network"},
)


def register_encoder(
    name: str,
    model: str = "",
    pretrained: str = "",
    uses: tuple[str, ...] | None = None,
    stamp: Stamp | None = None,
    settings: Sequence[Key] = (),
    asks_grey: bool = False,
    places: Places | None = None,
) -> Callable[[Make], Make]:
    """Decorator: register a function that makes the encoder ``ggeur.encoder.name:
    <name>``.

    Parameters
    ----------
    name : str
    model, pretrained : str
        The value that "" stands for in the setting of the same name.
    uses : names of `EncoderSettings` fields, optional
        The fields that the encoder uses. Other fields must have their defaults.
    stamp : callable (settings) -> mapping of texts, optional
        Returns a stamp that changes whenever the identity may have changed, without
        building the encoder. "weights" in it is None if the weights are not on this
        machine. Without a stamp, the encoder is built even if no image is left to
        embed.
    settings : sequence of Key
        The encoder's own settings, ``ggeur.<name>.*``. The encoder finds them in
        `EncoderSettings.options`.
    asks_grey : bool
        Whether the encoder must know if all images of the data set are grey.
    places : callable (settings) -> names of fields, optional
        Returns which of `model` and `pretrained` name files; by default, each of the
        two that is set. A run's folder may not name files unless the user allows it.

    Notes
    -----
    The function is called as ``make(settings, device)``, or ``make(settings, device,
    grey)`` with `asks_grey`. It returns an `Encoder` or raises `ConfigError`. The name
    of the encoder becomes part of its identity.
    """
    return registered(
        ENCODERS,
        name,
        settings,
        ("settings", "device", "grey") if asks_grey else ("settings", "device"),
        by_name=False,
        defaults={"model": model, "pretrained": pretrained},
        uses=uses,
        stamp=stamp,
        asks_grey=asks_grey,
        places=_given if places is None else places,
    )


def _given(settings: EncoderSettings) -> list[str]:
    return [name for name in ("model", "pretrained") if getattr(settings, name)]


def check_encoder(settings: EncoderSettings) -> None:
    """Raise `ConfigError` unless the named encoder exists and has these settings."""
    encoder = ENCODERS.find(settings.name)
    own = {key.name for key in encoder.SETTINGS}
    ignored = [f"ggeur.{encoder.name}.{n}" for n in settings.options if n not in own]
    ignored += [
        f"ggeur.encoder.{f.name}"
        for f in fields(EncoderSettings)
        if encoder.uses is not None
        and f.name not in {*encoder.uses, "name", "grey_bits", "options"}
        and getattr(settings, f.name) != f.default
    ]
    if ignored:
        raise ConfigError(
            f"{', '.join(ignored)}: the encoder '{settings.name}' does not use this; "
            "leave it out"
        )


def resolve(settings: EncoderSettings) -> EncoderSettings:
    """The settings with the encoder's defaults for "" and for missing options."""
    encoder = ENCODERS.find(settings.name)
    texts = {name: getattr(settings, name) or v for name, v in encoder.defaults.items()}
    return replace(settings, **texts, options=filled_in(encoder, settings.options))


def encoder_stamp(settings: EncoderSettings) -> dict[str, str | None] | None:
    """A value that changes if the encoder changes; None if the encoder has no stamp."""
    stamp = ENCODERS.find(settings.name).stamp
    return None if stamp is None else dict(stamp(resolve(settings)))


def build_encoder(
    settings: EncoderSettings, device: torch.device, grey: bool = False
) -> Encoder:
    """Build the encoder that `settings` describe, on `device`.

    `grey` says whether all images of the data set are grey. Images are loaded as RGB in
    any case.

    Raises
    ------
    ConfigError
        The encoder or model is unknown, a package is missing, or weights cannot be
        obtained or do not fit.
    PluginError
        The function returned no `Encoder`, or one without an identity.
    """
    check_encoder(settings)
    settings = resolve(settings)
    make = ENCODERS[settings.name]
    asked = (grey,) if make.asks_grey else ()
    # Building draws random weights, which must not change later draws of the run.
    with torch.random.fork_rng(devices=[]):
        encoder = make(settings, device, *asked)
    check_returned(f"the encoder '{settings.name}'", make, encoder, Encoder)
    _check_identity(settings.name, make, encoder.identity)
    if settings.precision != EncoderSettings.precision:
        _check_precision(encoder, settings.precision)
    identity = {"encoder": settings.name, **encoder.identity}
    if settings.grey_bits != EncoderSettings.grey_bits:
        identity["grey_bits"] = settings.grey_bits
        title = f"{encoder.title}, {settings.grey_bits} bits of grey"
        encoder = replace(encoder, title=title, grey_bits=settings.grey_bits)
    if settings.decode == EncoderSettings.decode:
        return replace(encoder, identity=identity)
    if encoder.frame is None or not encoder.frame.side:
        raise ConfigError(
            f"ggeur.encoder.decode: {encoder.title} makes images small in a way of its "
            "own, and so from Pillow's images alone; set pillow"
        )
    if settings.decode == "gpu":
        _check_gpu_decoding(encoder.device)
    return replace(
        encoder,
        title=f"{encoder.title}, decode {settings.decode}",
        identity={**identity, "decode": settings.decode},
        decode=settings.decode,
    )


def _check_identity(name: str, make: Make, identity: object) -> None:
    """Refuse an identity that is no mapping, or that JSON cannot hold."""
    what = f"identity of the encoder '{name}'"
    check_returned(what, make, identity, Mapping)
    try:
        identity_hash(identity)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise PluginError(
            f"{what}{where_of(make)} must have texts as names and plain values: {error}"
        ) from error


def _check_gpu_decoding(device: torch.device) -> None:
    import torchvision.io

    if not hasattr(torchvision.io, "decode_jpeg"):
        raise ConfigError(
            "ggeur.encoder.decode: gpu needs torchvision's decode_jpeg, which version "
            f"{torchvision.__version__} does not have; set draft or pillow"
        )
    if device.type == "cpu":
        logger.warning(
            "ggeur.encoder.decode: gpu decodes on the CPU here, because the encoder is "
            "on the CPU; that is slow, and pixels differ a little from a GPU's"
        )


def build_encoder_called(
    settings: EncoderSettings, device: torch.device, wanted: str
) -> Encoder:
    """Build the encoder of `settings` for grey or for coloured images.

    It is the encoder for grey images if that one is called `wanted`; otherwise the
    encoder for coloured images.
    """
    encoder = build_encoder(settings, device)
    if encoder.name != wanted and ENCODERS[settings.name].asks_grey:
        grey = build_encoder(settings, device, grey=True)
        return grey if grey.name == wanted else encoder
    return encoder


def _check_precision(encoder: Encoder, precision: str) -> None:
    """Refuse a precision in which the model's layers cannot compute with this torch."""
    sample = encoder.preprocess(Image.new("RGB", (64, 64)))
    whose = f"preprocess of the encoder {encoder.name}"
    check_returned(whose, encoder.preprocess, sample, Tensor)
    try:
        encoder.encode(sample[None])
    except RuntimeError as error:
        raise ConfigError(
            f"ggeur.encoder.precision: {encoder.title} cannot compute in {precision} "
            f"on {encoder.device} with torch {torch.__version__} ({error}); set fp32"
        ) from error
