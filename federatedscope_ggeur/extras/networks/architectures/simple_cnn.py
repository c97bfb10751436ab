"""``simple_cnn``: the network with two convolutions that MarsFL trains on CIFAR-10."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from ..base import ImageShape, Network, TwoPart, check_side, register_network
from ..image_network import NetworkSettings

_WIDTHS = (6, 16)
_REPRESENTATION = 256


class SimpleCNN(TwoPart):
    """Two 5x5 convolutions with ReLU and pooling, and five linear layers, without
    norms.

    The output of the fourth linear layer is the representation z.
    """

    def __init__(self, image: ImageShape, num_classes: int):
        super().__init__()
        self.conv1 = nn.Conv2d(image.channels, _WIDTHS[0], 5)
        self.pool1 = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(_WIDTHS[0], _WIDTHS[1], 5)
        self.pool2 = nn.MaxPool2d(2)
        side = ((image.side - 4) // 2 - 4) // 2
        self.fc1 = nn.Linear(_WIDTHS[1] * side**2, 120)
        self.fc2 = nn.Linear(120, 84)
        self.l1 = nn.Linear(84, 84)
        self.l2 = nn.Linear(84, _REPRESENTATION)
        self.cls = nn.Linear(_REPRESENTATION, num_classes)

    def represent(self, images: Tensor) -> Tensor:
        x = self.pool1(F.relu(self.conv1(images)))
        x = self.pool2(F.relu(self.conv2(x))).flatten(1)
        for layer in (self.fc1, self.fc2, self.l1):
            x = F.relu(layer(x))
        return self.l2(x)

    def classify(self, representation: Tensor) -> Tensor:
        return self.cls(representation)


@register_network(
    "simple_cnn",
    meaning="two 5x5 convolutions and five linear layers, without normalisation",
    source="MarsFL (Huang 2023), CIFAR-10",
)
def simple_cnn(
    image: ImageShape, num_classes: int, settings: NetworkSettings, dropout: float
) -> Network:
    check_side("simple_cnn", image, 16)
    return Network(
        SimpleCNN(image, num_classes),
        width=_REPRESENTATION,
        classifier="cls",
        stages=("pool1", "pool2"),
        stage_widths=_WIDTHS,
    )
