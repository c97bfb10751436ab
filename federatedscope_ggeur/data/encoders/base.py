"""What an encoder is, and which encoder serves which ``ggeur.encoder.name``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace

import torch
from PIL import Image
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError

PRECISIONS = ("fp32", "bf16", "fp16")
QUICK_GELU = ("auto", "with", "without")


@dataclass(frozen=True)
class EncoderSettings:
    """The settings that decide what features an encoder gives.

    Parameters
    ----------
    name : str
        A registered encoder: open_clip, timm, hog, pixels, or one of your own.
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
    """

    name: str = "open_clip"
    model: str = ""
    pretrained: str = ""
    normalize: bool = False
    precision: str = "fp32"
    quick_gelu: str = "auto"
    image_size: int | None = None


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
    encode : callable (Tensor [B, ...] on the CPU) -> Tensor [B, D] float32
        The result may lie on `device`.
    device : torch.device
        Where `encode` computes.
    """

    title: str
    identity: Mapping[str, object]
    dim: int
    preprocess: Callable[[Image.Image], Tensor]
    encode: Callable[[Tensor], Tensor]
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def name(self) -> str:
        """One line that no encoder of another identity has."""
        return encoder_name(self.title, self.identity)


def encoder_name(title: str, identity: Mapping[str, object]) -> str:
    """The title and the start of the identity's hash."""
    return f"{title}, id {identity_hash(identity)[:12]}"


def identity_hash(identity: Mapping[str, object]) -> str:
    """SHA-256 of an identity, in hexadecimal digits."""
    text = json.dumps(identity, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


Make = Callable[[EncoderSettings, torch.device], Encoder]
Stamp = Callable[[EncoderSettings], Mapping[str, "str | None"]]


@dataclass(frozen=True)
class _Registered:
    make: Make
    model: str
    pretrained: str
    uses: frozenset[str] | None
    stamp: Stamp | None


_ENCODERS: dict[str, _Registered] = {}


def register_encoder(
    name: str,
    model: str = "",
    pretrained: str = "",
    uses: tuple[str, ...] | None = None,
    stamp: Stamp | None = None,
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

    Notes
    -----
    The function is called as ``make(settings, device)`` and returns an `Encoder`, or
    raises `ConfigError`. The encoder's name is added to its identity.
    """

    def register(make: Make) -> Make:
        if name in _ENCODERS:
            raise ValueError(f"an encoder named '{name}' is already registered")
        used = None if uses is None else frozenset(uses)
        _ENCODERS[name] = _Registered(make, model, pretrained, used, stamp)
        return make

    return register


def check_encoder(settings: EncoderSettings) -> None:
    """Raise `ConfigError` unless an encoder of that name takes these settings."""
    found = _find(settings)
    if found.uses is None:
        return
    ignored = [
        f"ggeur.encoder.{f.name}"
        for f in fields(EncoderSettings)
        if f.name not in found.uses | {"name"}
        and getattr(settings, f.name) != f.default
    ]
    if ignored:
        raise ConfigError(
            f"{', '.join(ignored)}: the encoder '{settings.name}' has no such setting; "
            "leave it out"
        )


def resolve(settings: EncoderSettings) -> EncoderSettings:
    """The settings with the encoder's defaults in place of ""."""
    found = _find(settings)
    return replace(
        settings,
        model=settings.model or found.model,
        pretrained=settings.pretrained or found.pretrained,
    )


def encoder_stamp(settings: EncoderSettings) -> dict[str, str | None] | None:
    """What changes when the encoder may have changed; None if only building tells."""
    stamp = _find(settings).stamp
    return None if stamp is None else dict(stamp(resolve(settings)))


def build_encoder(settings: EncoderSettings, device: torch.device) -> Encoder:
    """The encoder that `settings` describe, ready on `device`.

    Raises
    ------
    ConfigError
        Unknown encoder or model, weights that cannot be had or do not fit, packages
        that are missing.
    """
    check_encoder(settings)
    found, settings = _find(settings), resolve(settings)
    # Weights are drawn and then mostly overwritten: no one else's draws may shift.
    with torch.random.fork_rng(devices=[]):
        encoder = found.make(settings, device)
    if settings.precision != EncoderSettings.precision:
        _check_precision(encoder, settings.precision)
    identity = {"encoder": settings.name, **encoder.identity}
    return replace(encoder, identity=identity)


def _check_precision(encoder: Encoder, precision: str) -> None:
    """Refuse what a model's layers cannot do: which they are depends on torch."""
    try:
        encoder.encode(encoder.preprocess(Image.new("RGB", (64, 64)))[None])
    except RuntimeError as error:
        raise ConfigError(
            f"ggeur.encoder.precision: {encoder.title} cannot compute in {precision} "
            f"on {encoder.device} with torch {torch.__version__} ({error}); take fp32"
        ) from error


def _find(settings: EncoderSettings) -> _Registered:
    if settings.name not in _ENCODERS:
        known = ", ".join(sorted(_ENCODERS))
        raise ConfigError(
            f"ggeur.encoder.name '{settings.name}' is unknown; known are: {known}."
        )
    return _ENCODERS[settings.name]
