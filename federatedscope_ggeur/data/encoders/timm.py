"""Encoder ``timm``: pooled features of image models from the timm library."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import torch
from torch import nn

from federatedscope_ggeur import weights
from federatedscope_ggeur.downloads import obtain, of_timm, sha256_file
from federatedscope_ggeur.errors import ConfigError

from . import torch_models
from .base import Encoder, EncoderSettings, register_encoder


def _stamp(settings: EncoderSettings) -> dict[str, str | None]:
    return torch_models.library_stamp(
        "timm", "timm", settings, lambda s: of_timm(_config(s))
    )


@register_encoder(
    "timm",
    pretrained=weights.DEFAULT,
    uses=("model", "pretrained", "normalize", "precision", "decode"),
    stamp=_stamp,
    places=torch_models.places,
)
def timm(settings: EncoderSettings, device: torch.device) -> Encoder:
    """The pooled features before the classifier, with timm's preprocessing.

    `model` is a model of timm, with or without a tag (``resnet50.a1_in1k``).
    `pretrained` is a tag, "default", a local file, or none.

    Raises
    ------
    ConfigError
        The model or tag is unknown. Or the weights cannot be found or downloaded, or do
        not fit the model.
    """
    library = weights.load_timm(settings.model, "ggeur.encoder.model")
    title, path, name = _find(library, settings)
    model = _build(library, name, title, path)
    if path is not None and torch_models.local_file(settings.pretrained) is not None:
        _check_complete(model, _build(library, name, title, path, seed=1), path)
    model = model.eval().requires_grad_(False)
    data = library.data.resolve_model_data_config(model)
    digits = torch_models.state_hash(model) if path is None else sha256_file(path)
    dim = model(torch.zeros(1, *data["input_size"])).shape[1]
    return torch_models.model_encoder(
        settings,
        device,
        title=f"timm {name}, {title}",
        identity={
            "model": name.partition(".")[0],
            "weights": digits,
            "preprocess": json.dumps(data, sort_keys=True),
        },
        forward=model.to(device),
        transform=library.data.create_transform(**data, is_training=False),
        dim=dim,
    )


def _build(library, name: str, title: str, path: Path | None, seed: int = 0):
    overlay = None if path is None else {"file": str(path), "source": None}
    with torch_models.making("timm", name, title, seed):
        return library.create_model(
            name,
            pretrained=path is not None,
            pretrained_cfg_overlay=overlay,
            num_classes=0,
        )


def _check_complete(model: nn.Module, again: nn.Module, path: Path) -> None:
    """Refuse a weights file that lacks weights, because timm would leave them random.

    `model` and `again` got their random weights from different seeds before the file
    was read. So weights that still differ are not in the file.
    """
    other = again.state_dict()
    random = [n for n, t in model.state_dict().items() if not torch.equal(t, other[n])]
    if random:
        raise ConfigError(
            f"the weights file '{path}' is of another model, because it lacks "
            f"{len(random)} of the weights, e.g. {', '.join(random[:3])}; name the "
            "file of this model"
        )


def _find(library, settings: EncoderSettings) -> tuple[str, Path | None, str]:
    """Title and file of the weights, and the model's full name.

    The file is None for random weights.
    """
    model = settings.model
    if torch_models.is_random(settings.pretrained):
        return "random weights", None, model
    path = torch_models.local_file(settings.pretrained)
    if path is None:
        config = _config(settings)
        name = f"{config.architecture}.{config.tag}" if config.tag else model
        size = partial(weights.parameter_bytes, partial(library.create_model, model))
        by_hand = f"{torch_models.KEY} FILE{torch_models.WITHOUT}"
        path = obtain(of_timm(config), f"timm {name}", size, by_hand)
        title = f"weights {config.tag or weights.DEFAULT}"
    else:
        name, title = model, f"weights {path.name}"
    torch_models.check_readable(path)
    return title, path, name


def _config(settings: EncoderSettings):
    """timm's description of the published weights that `settings` name."""
    library = weights.load_timm(settings.model, "ggeur.encoder.model")
    named = settings.model, settings.pretrained
    return weights.timm_config(library, *named, torch_models.KEY)
