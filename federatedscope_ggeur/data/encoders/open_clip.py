"""Encoder ``open_clip``: the image side of CLIP models. Also loads both sides."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from federatedscope_ggeur.data.encoders.base import (
    Encoder,
    EncoderSettings,
    register_encoder,
)
from federatedscope_ggeur.data.encoders.frames import frame_of
from federatedscope_ggeur.data.encoders.model import (
    check_precision,
    forward_pass,
    library_stamp,
    making,
    model_encoder,
    state_hash,
)
from federatedscope_ggeur.data.encoders.open_clip_weights import (
    Weights,
    find_weights,
    remote_of,
    root_logger_kept,
)
from federatedscope_ggeur.data.encoders.quick_gelu import plain_name
from federatedscope_ggeur.data.encoders.weights import places
from federatedscope_ggeur.downloads import check_allowed
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.weights import load_library

logger = get_logger(__name__)


def _stamp(settings: EncoderSettings) -> dict[str, str | None]:
    return library_stamp("open_clip", "open_clip_torch", _plain(settings), remote_of)


@register_encoder(
    "open_clip",
    model="ViT-B-16",
    pretrained="openai",
    uses=("model", "pretrained", "normalize", "precision", "quick_gelu", "decode"),
    stamp=_stamp,
    places=places,
)
def open_clip(settings: EncoderSettings, device: torch.device) -> Encoder:
    """The image features of ``encode_image``, with open_clip's preprocessing.

    `pretrained` is a tag of open_clip, a local file (safetensors, or a state dict that
    torch reads with ``weights_only``), or none.

    Raises
    ------
    ConfigError
        The model or tag is unknown. Or the weights cannot be found or downloaded, do
        not fit the model, or were trained with the other kind of GELU.
    """
    check_precision(settings.precision, device)
    made = load_open_clip(settings, device)
    frame = frame_of(made.transform)
    return model_encoder(
        settings,
        title=made.title,
        identity=made.identity,
        dim=made.dim,
        preprocess=made.transform if frame is None else frame.shape,
        encode=forward_pass(
            made.model.encode_image,
            device,
            settings.precision,
            settings.normalize,
            frame,
        ),
        frame=frame,
        device=device,
        both_sides=made,
    )


@dataclass(frozen=True, eq=False)
class OpenClip:
    """A frozen model of open_clip with its weights, image and text side.

    Attributes
    ----------
    name : str
        The name of the model in open_clip.
    title : str
        A description for people, in one line.
    identity : mapping
        Everything that features depend on, except scaling and precision.
    dim : int
        D, which is the same on both sides.
    model : module
    transform : callable
        The preprocessing of images.
    """

    name: str
    title: str
    identity: Mapping[str, object]
    dim: int
    model: Any
    transform: Callable


def load_open_clip(settings: EncoderSettings, device: torch.device) -> OpenClip:
    """Load the model that `settings` name, on `device`.

    Raises
    ------
    ConfigError
        The errors of `open_clip`.
    """
    library = load_library("open_clip", "open_clip_torch", "ggeur.encoder.name")
    settings = _plain(settings)
    if settings.model not in library.list_models():
        raise ConfigError(
            f"ggeur.encoder.model: open_clip has no model '{settings.model}'; it has "
            f"{', '.join(library.list_models())}"
        )
    config = library.get_model_config(settings.model)
    weights = find_weights(settings, bool(config.get("quick_gelu", False)))
    model, transform = _build(library, settings.model, weights, config["text_cfg"])
    digits = weights.digits or state_hash(model)
    model = model.to(device)
    name = plain_name(settings.model) + (" QuickGELU" if weights.quick_gelu else "")
    return OpenClip(
        name=settings.model,
        title=f"open_clip {name}, {weights.title}",
        identity={
            "model": plain_name(settings.model),
            "quick_gelu": weights.quick_gelu,
            "weights": digits,
            "preprocess": json.dumps(model.visual.preprocess_cfg, sort_keys=True),
        },
        dim=int(config["embed_dim"]),
        model=model,
        transform=transform,
    )


def _plain(settings: EncoderSettings) -> EncoderSettings:
    """The settings with open_clip's spelling ViT-B-16 for OpenAI's ViT-B/16."""
    return replace(settings, model=settings.model.replace("/", "-"))


def _build(library, name: str, weights: Weights, text_config: dict):
    """Make the frozen model and its preprocessing of images."""
    if "hf_model_name" in text_config:
        check_allowed()
        logger.info(
            "open_clip fetches the configuration of %s from huggingface.co; it is the "
            "text side of %s",
            text_config["hf_model_name"],
            name,
        )
    with making("open_clip", name, weights.title), root_logger_kept():
        model, _, transform = library.create_model_and_transforms(
            name,
            pretrained=None if weights.path is None else str(weights.path),
            force_quick_gelu=weights.quick_gelu,
            pretrained_hf=False,  # no weights of the text side alone
            **(weights.preprocess or {}),
        )
        if weights.tensors is not None:
            model.load_state_dict(weights.tensors)
    return model.eval().requires_grad_(False), transform
