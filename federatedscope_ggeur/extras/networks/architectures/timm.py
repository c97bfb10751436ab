"""``timm:<model>``: an image model of the timm library, such as a Swin transformer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from federatedscope_ggeur.downloads import obtain, of_timm
from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.weights import (
    DEFAULT,
    load_timm,
    parameter_bytes,
    timm_config,
)

from ..base import ImageShape, Network, register_network
from ..image_network import NetworkSettings


def _represent(module, images: Tensor) -> Tensor:
    return module.forward_head(module.forward_features(images), pre_logits=True)


def _classify(module, representation: Tensor) -> Tensor:
    return module.get_classifier()(representation)


@register_network(
    "timm",
    meaning="timm:<model>, any image model of timm, e.g. "
    "timm:swin_tiny_patch4_window7_224",
    source="Wightman 2019",
)
def timm(
    image: ImageShape, num_classes: int, settings: NetworkSettings, dropout: float
) -> Network:
    name = settings.name.partition(":")[2]
    library = _library(name)
    options = {"num_classes": num_classes, "in_chans": image.channels}
    config = library.get_pretrained_cfg(name)
    if config is not None and config.fixed_input_size:
        options["img_size"] = image.side
    try:
        module = library.create_model(name, **options)
    except Exception as error:  # each model of timm raises other errors
        raise ConfigError(
            f"{setting('network.name')}: timm cannot make {name} for images of "
            f"{image.side} x {image.side} pixels: {type(error).__name__}: "
            f"{error!s:.300}; set {setting('encoder.image_size')} to a size that it "
            "takes"
        ) from error
    last = module.get_classifier()
    if not isinstance(last, nn.Linear):
        raise ConfigError(
            f"{setting('network.name')}: the last layer of timm's {name} is a "
            f"{type(last).__name__}, not a Linear; take another model"
        )
    stages = getattr(module, "feature_info", None) or []
    if not all("module" in stage for stage in stages):
        stages = []
    return Network(
        module,
        width=last.in_features,
        classifier=next(n for n, m in module.named_modules() if m is last),
        represent=_represent,
        classify=_classify,
        stages=tuple(stage["module"] for stage in stages),
        stage_widths=tuple(stage["num_chs"] for stage in stages),
        channels_last=getattr(module, "output_fmt", "NCHW") == "NHWC",
        published=partial(_published, options),
    )


def _published(options: dict, settings: NetworkSettings) -> Mapping[str, Tensor]:
    """timm's weights with the tag ``settings.weights``."""
    name = settings.name.partition(":")[2]
    library = _library(name)
    config = timm_config(library, name, settings.weights, setting("network.weights"))
    if settings.weights != DEFAULT:
        name = f"{name.partition('.')[0]}.{settings.weights}"
    path = obtain(
        of_timm(config),
        f"timm {name}",
        partial(parameter_bytes, partial(library.create_model, name)),
        f"{setting('network.weights')} FILE",
    )
    overlay = {"file": str(path), "source": None}
    # If the classes are others, the last layer is drawn at random.
    with torch.random.fork_rng(devices=[]):
        module = library.create_model(
            name, pretrained=True, pretrained_cfg_overlay=overlay, **options
        )
    last = module.get_classifier()
    published = module.pretrained_cfg.get("num_classes") == options["num_classes"]
    left_out = next(n for n, m in module.named_modules() if m is last)
    state = module.state_dict()
    if published:
        return state
    return {n: t for n, t in state.items() if not n.startswith(f"{left_out}.")}


def _library(name: str):
    return load_timm(name, setting("network.name"), f"timm:{name}")
