"""What an encoder is, and which encoder serves which ``ggeur.encoder.name``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from federatedscope_ggeur.data.parts import filled_in, registered
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.settings import Key, Registry, check_returned


@dataclass(frozen=True)
class EncoderSettings:
    """The settings that decide what features an encoder gives.

    Parameters
    ----------
    name : str
        A registered encoder: open_clip, timm, hog, pixels, image, run, or one of your
        own.
    model : str
        The encoder's model; "" for its default.
    pretrained : str
        Weights: a tag that the encoder knows, a local file, "none" for random weights
        (always the same ones); "" for its default.
    normalize : bool
        Scale every feature vector to Euclidean length 1.
    precision : str
        fp32, or bf16 or fp16 by autocast (fp16 on a GPU only).
    quick_gelu : str
        Whether the weights were trained with the QuickGELU activation: with, without,
        or auto, what is known of them.
    image_size : int or None
        Side in pixels of the square that images are resized to; None for the
        encoder's own.
    options : mapping
        The encoder's own settings, by name; those left out have their defaults. What
        its features depend on must stand in its `Encoder.identity`.
    """

    name: str = "open_clip"
    model: str = ""
    pretrained: str = ""
    normalize: bool = False
    precision: str = "fp32"
    quick_gelu: str = "auto"
    image_size: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, eq=False)
class Encoder:
    """Turns images into features.

    Parameters
    ----------
    title : str
        What it is, in one line for a person.
    identity : mapping of str to plain values
        Everything that its features depend on, e.g. model, hash of the weights,
        preprocessing, precision. Two encoders of equal identity give equal features up
        to rounding.
    dim : int
        D, the length of a feature vector.
    preprocess : callable (PIL image of mode RGB) -> Tensor
        All results have the same shape. Runs in the data-loading workers, where it must
        not touch a GPU.
    encode : callable (Tensor [B, ...] on the CPU) -> Tensor [B, D] of `dtype`
        The result may lie on `device`.
    device : torch.device
        Where `encode` computes.
    image_shape : (channels, height, width) or None
        Of the images whose uint8 pixels its features are; None for embeddings.
    both_sides : object
        The model that it is the image side of, where that has a text side, too.
    """

    title: str
    identity: Mapping[str, object]
    dim: int
    preprocess: Callable[[Image.Image], Tensor]
    encode: Callable[[Tensor], Tensor]
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    image_shape: tuple[int, int, int] | None = None
    both_sides: Any = None

    @property
    def dtype(self) -> torch.dtype:
        """uint8 where its features are pixels, else float32."""
        return torch.float32 if self.image_shape is None else torch.uint8

    @property
    def name(self) -> str:
        """One line that no encoder of another identity has."""
        return f"{self.title}, id {identity_hash(self.identity)[:12]}"


def identity_hash(identity: Mapping[str, object]) -> str:
    """SHA-256 of an identity, in hexadecimal digits."""
    text = json.dumps(identity, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


Make = Callable[..., Encoder]
Stamp = Callable[[EncoderSettings], Mapping[str, "str | None"]]
Places = Callable[[EncoderSettings], Sequence[str]]
ENCODERS: Registry[Make] = Registry("encoder", "ggeur.encoder.name")


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
    """Decorator: the function makes the encoder of ``ggeur.encoder.name: <name>``.

    Parameters
    ----------
    name : str
    model, pretrained : str
        What "" stands for in the settings of these names.
    uses : names of `EncoderSettings` fields, optional
        Fields other than these are refused unless they have their default.
    stamp : callable (settings) -> mapping of texts, optional
        Found without building the encoder, changes whenever its identity may have
        changed; "weights" is None where the weights are not on this machine. Without
        it, the encoder is built even if nothing is left to extract.
    settings : sequence of Key
        Its own, ``ggeur.<name>.*``, which it finds in `EncoderSettings.options`.
    asks_grey : bool
        Whether it makes something else of a data set whose images are all grey.
    places : callable (settings) -> names of fields, optional
        Which of `model` and `pretrained` name files; by default those that are given.
        A run's folder may not send it there without the user's word.

    Notes
    -----
    The function is called as ``make(settings, device)``, or ``make(settings, device,
    grey)`` if it asks, and returns an `Encoder`, or raises `ConfigError`. The encoder's
    name is added to its identity.
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
    """Raise `ConfigError` unless an encoder of that name takes these settings."""
    found = ENCODERS.find(settings.name)
    own = {key.name for key in found.SETTINGS}
    ignored = [f"ggeur.{found.name}.{n}" for n in settings.options if n not in own]
    ignored += [
        f"ggeur.encoder.{f.name}"
        for f in fields(EncoderSettings)
        if found.uses is not None
        and f.name not in {*found.uses, "name", "options"}
        and getattr(settings, f.name) != f.default
    ]
    if ignored:
        raise ConfigError(
            f"{', '.join(ignored)}: the encoder '{settings.name}' has no such setting; "
            "leave it out"
        )


def resolve(settings: EncoderSettings) -> EncoderSettings:
    """The settings with the encoder's defaults in place of "" and of missing ones."""
    found = ENCODERS.find(settings.name)
    texts = {name: getattr(settings, name) or v for name, v in found.defaults.items()}
    return replace(settings, **texts, options=filled_in(found, settings.options))


def encoder_stamp(settings: EncoderSettings) -> dict[str, str | None] | None:
    """What changes when the encoder may have changed; None if only building tells."""
    stamp = ENCODERS.find(settings.name).stamp
    return None if stamp is None else dict(stamp(resolve(settings)))


def build_encoder(
    settings: EncoderSettings, device: torch.device, grey: bool = False
) -> Encoder:
    """The encoder that `settings` describe, ready on `device`.

    `grey` says whether all images of the data set are grey; they are loaded as RGB all
    the same.

    Raises
    ------
    ConfigError
        Unknown encoder or model, weights that cannot be had or do not fit, packages
        that are missing.
    """
    check_encoder(settings)
    settings = resolve(settings)
    make = ENCODERS[settings.name]
    asked = (grey,) if make.asks_grey else ()
    # Weights are drawn and then mostly overwritten: no one else's draws may shift.
    with torch.random.fork_rng(devices=[]):
        encoder = make(settings, device, *asked)
    check_returned(f"the encoder '{settings.name}'", make, encoder, Encoder)
    if settings.precision != EncoderSettings.precision:
        _check_precision(encoder, settings.precision)
    identity = {"encoder": settings.name, **encoder.identity}
    return replace(encoder, identity=identity)


def build_encoder_called(
    settings: EncoderSettings, device: torch.device, wanted: str
) -> Encoder:
    """The encoder; of two, by whether all images are grey, the one called `wanted`."""
    encoder = build_encoder(settings, device)
    if encoder.name != wanted and ENCODERS[settings.name].asks_grey:
        grey = build_encoder(settings, device, grey=True)
        return grey if grey.name == wanted else encoder
    return encoder


def _check_precision(encoder: Encoder, precision: str) -> None:
    """Refuse what a model's layers cannot do: which they are depends on torch."""
    try:
        encoder.encode(encoder.preprocess(Image.new("RGB", (64, 64)))[None])
    except RuntimeError as error:
        raise ConfigError(
            f"ggeur.encoder.precision: {encoder.title} cannot compute in {precision} "
            f"on {encoder.device} with torch {torch.__version__} ({error}); take fp32"
        ) from error
