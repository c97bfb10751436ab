"""``resnet18``, ``resnet34``, ``resnet50``: torchvision's ResNets, with either stem."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor, nn

from federatedscope_ggeur.downloads import Remote, obtain
from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.weights import DEFAULT, load_library

from ..base import ImageShape, Network, register_network
from ..image_network import NetworkSettings


def _represent(module, images: Tensor) -> Tensor:
    x = module.maxpool(module.relu(module.bn1(module.conv1(images))))
    x = module.layer4(module.layer3(module.layer2(module.layer1(x))))
    return module.avgpool(x).flatten(1)


def _classify(module, representation: Tensor) -> Tensor:
    return module.fc(representation)


def _resnet(name: str, image: ImageShape, classes: int, stem: str) -> Network:
    key = setting("network.name")
    models = load_library("torchvision.models", "torchvision", key, name)
    module = getattr(models, name)(weights=None, num_classes=classes)
    conv = module.conv1
    if stem == "cifar":
        module.conv1 = nn.Conv2d(image.channels, 64, 3, padding=1, bias=False)
        module.maxpool = nn.Identity()
    elif image.channels != conv.in_channels:
        module.conv1 = nn.Conv2d(image.channels, 64, 7, 2, padding=3, bias=False)
    if module.conv1 is not conv:
        # torchvision draws all its convolutions in this way.
        nn.init.kaiming_normal_(
            module.conv1.weight, mode="fan_out", nonlinearity="relu"
        )
    width = module.fc.in_features
    stage_widths = (64, *(width // 2**k for k in (3, 2, 1, 0)))
    return Network(
        module,
        width=width,
        classifier="fc",
        represent=_represent,
        classify=_classify,
        stages=("maxpool", "layer1", "layer2", "layer3", "layer4"),
        stage_widths=stage_widths,
        published=_published,
    )


def _published(settings: NetworkSettings) -> Mapping[str, Tensor]:
    """torchvision's weights called ``settings.weights``, e.g. ``IMAGENET1K_V1``."""
    models = import_module("torchvision.models")
    known = models.get_model_weights(settings.name)
    tag = settings.weights
    weights = known.DEFAULT if tag == DEFAULT else known.__members__.get(tag)
    if weights is None:
        raise ConfigError(
            f"{setting('network.weights')}: torchvision has no weights {tag!r} of "
            f"{settings.name}. Name a file, or one of {DEFAULT}, "
            f"{', '.join(known.__members__)}"
        )
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    digits = Path(weights.url).stem.rpartition("-")[2]  # resnet18-f37072fd.pth
    path = obtain(
        Remote("", (), weights.url, folder, digits),
        f"torchvision's {settings.name}, {weights.name}",
        lambda: 4 * weights.meta["num_params"],
        f"{setting('network.weights')} FILE",
    )
    return torch.load(str(path), map_location="cpu", weights_only=True)


def _register(layers: int) -> None:
    name = f"resnet{layers}"

    @register_network(
        name, meaning=f"ResNet of {layers} layers", source="He 2016; torchvision"
    )
    def make(
        image: ImageShape, num_classes: int, settings: NetworkSettings, dropout: float
    ) -> Network:
        return _resnet(name, image, num_classes, settings.stem)


for _layers in (18, 34, 50):
    _register(_layers)
