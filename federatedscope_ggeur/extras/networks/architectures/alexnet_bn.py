"""``alexnet_bn``: AlexNet with BatchNorm, the network of FedFA's experiments."""

from __future__ import annotations

from torch import Tensor, nn

from ..base import ImageShape, Network, TwoPart, check_side, register_network
from ..image_network import NetworkSettings

#: For each convolution: channels, kernel, stride, padding, and whether pooling follows.
_STAGES = (
    (64, 11, 4, 2, True),
    (192, 5, 1, 2, True),
    (384, 3, 1, 1, False),
    (256, 3, 1, 1, False),
    (256, 3, 1, 1, True),
)
_WIDTHS = tuple(stage[0] for stage in _STAGES)
_POOLED = 6
#: FedFA's value, which gives 12,974,154 weights for ten classes. FedBN's code has 4096.
_HIDDEN = 1024


class AlexNetBN(TwoPart):
    """Five convolutions and three linear layers, all but the last with norm and ReLU.

    The representation z is the input of the last linear layer.
    """

    def __init__(self, channels: int, num_classes: int):
        super().__init__()
        stages, inputs = [], channels
        for outputs, kernel, stride, padding, pools in _STAGES:
            layers: list[nn.Module] = [
                nn.Conv2d(inputs, outputs, kernel, stride, padding),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
            ]
            layers += [nn.MaxPool2d(3, 2)] if pools else []
            stages.append(nn.Sequential(*layers))
            inputs = outputs
        self.features = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(_POOLED)
        self.hidden = nn.Sequential(
            nn.Linear(inputs * _POOLED**2, _HIDDEN),
            nn.BatchNorm1d(_HIDDEN),
            nn.ReLU(),
            nn.Linear(_HIDDEN, _HIDDEN),
            nn.BatchNorm1d(_HIDDEN),
            nn.ReLU(),
        )
        self.fc = nn.Linear(_HIDDEN, num_classes)

    def represent(self, images: Tensor) -> Tensor:
        return self.hidden(self.pool(self.features(images)).flatten(1))

    def classify(self, representation: Tensor) -> Tensor:
        return self.fc(representation)


@register_network(
    "alexnet_bn",
    meaning="AlexNet with BatchNorm behind every layer but the last; 1024 hidden units",
    source="Krizhevsky 2012; FedFA (Zhou 2023)",
)
def alexnet_bn(
    image: ImageShape, num_classes: int, settings: NetworkSettings, dropout: float
) -> Network:
    check_side("alexnet_bn", image, 64)
    return Network(
        AlexNetBN(image.channels, num_classes),
        width=_HIDDEN,
        classifier="fc",
        stages=tuple(f"features.{i}" for i in range(len(_STAGES))),
        stage_widths=_WIDTHS,
    )
