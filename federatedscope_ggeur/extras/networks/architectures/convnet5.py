"""``convnet5``: five convolutions, with the layout of FederatedScope's ``ConvNet5``."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from federatedscope_ggeur.models.heads import Dropout

from ..base import ImageShape, Network, TwoPart, check_side, register_network
from ..image_network import NetworkSettings

_WIDTHS = (32, 64, 64, 128, 128)
_HIDDEN = 2048


class ConvNet5(TwoPart):
    """Five times 5x5 convolution, norm, ReLU and pooling by two; then two linear
    layers.

    The representation is the input of the first linear layer.
    """

    def __init__(self, image: ImageShape, num_classes: int, dropout: float):
        super().__init__()
        inputs = image.channels
        for i, outputs in enumerate(_WIDTHS, start=1):
            self.add_module(f"conv{i}", nn.Conv2d(inputs, outputs, 5, padding=2))
            self.add_module(f"bn{i}", nn.BatchNorm2d(outputs))
            self.add_module(f"pool{i}", nn.MaxPool2d(2))
            inputs = outputs
        side = image.side // 2 ** len(_WIDTHS)
        self.fc1 = nn.Linear(inputs * side**2, _HIDDEN)
        self.fc2 = nn.Linear(_HIDDEN, num_classes)
        self.dropout = Dropout(dropout)

    def represent(self, images: Tensor) -> Tensor:
        x = images
        for i in range(1, len(_WIDTHS) + 1):
            conv, norm, pool = (
                self.get_submodule(f"{part}{i}") for part in ("conv", "bn", "pool")
            )
            x = pool(F.relu(norm(conv(x))))
        return x.flatten(1)

    def last_input(self, representation: Tensor) -> Tensor:
        return F.relu(self.fc1(representation))

    def classify(self, representation: Tensor) -> Tensor:
        x = F.relu(self.fc1(self.dropout(representation)))
        return self.fc2(self.dropout(x))


@register_network(
    "convnet5",
    meaning="five 5x5 convolutions and two linear layers; model.dropout before these",
    source="FederatedScope's ConvNet5",
)
def convnet5(
    image: ImageShape, num_classes: int, settings: NetworkSettings, dropout: float
) -> Network:
    check_side("convnet5", image, 2 ** len(_WIDTHS))
    module = ConvNet5(image, num_classes, dropout)
    return Network(
        module,
        width=module.fc1.in_features,
        classifier="fc2",
        last_input=ConvNet5.last_input,
        stages=tuple(f"pool{i}" for i in range(1, len(_WIDTHS) + 1)),
        stage_widths=_WIDTHS,
    )
