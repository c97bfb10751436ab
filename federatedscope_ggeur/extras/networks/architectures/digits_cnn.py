"""``digits_cnn``: three convolutions, for small images and quick tests."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from ..base import ImageShape, Network, TwoPart, check_side, register_network
from ..image_network import NetworkSettings

_WIDTHS = (16, 32, 64)


class DigitsCNN(TwoPart):
    """Three stages of a 3x3 convolution, norm and ReLU. The second stage pools by two.

    The input of the last layer is the mean over the last map.
    """

    def __init__(self, channels: int, num_classes: int):
        super().__init__()
        self.stage1 = _stage(channels, _WIDTHS[0])
        self.stage2 = _stage(_WIDTHS[0], _WIDTHS[1], nn.MaxPool2d(2))
        self.stage3 = _stage(_WIDTHS[1], _WIDTHS[2])
        self.fc = nn.Linear(_WIDTHS[2], num_classes)

    def represent(self, images: Tensor) -> Tensor:
        return self.stage3(self.stage2(self.stage1(images))).mean(dim=(2, 3))

    def classify(self, representation: Tensor) -> Tensor:
        return self.fc(representation)


def _stage(inputs: int, outputs: int, *more: nn.Module) -> nn.Sequential:
    layers = [
        ("conv", nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)),
        ("norm", nn.BatchNorm2d(outputs)),
        ("relu", nn.ReLU()),
        *((f"pool{i}", layer) for i, layer in enumerate(more)),
    ]
    return nn.Sequential(OrderedDict(layers))


@register_network(
    "digits_cnn",
    meaning="three 3x3 convolutions of 16, 32 and 64 channels",
    source="this project's",
)
def digits_cnn(
    image: ImageShape, num_classes: int, settings: NetworkSettings, dropout: float
) -> Network:
    check_side("digits_cnn", image, 2)
    return Network(
        DigitsCNN(image.channels, num_classes),
        width=_WIDTHS[-1],
        classifier="fc",
        stages=("stage1", "stage2", "stage3"),
        stage_widths=_WIDTHS,
    )
