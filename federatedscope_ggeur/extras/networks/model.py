"""The network that a run trains: its settings, and what cannot go with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.models import OtherModel, register_other_model
from federatedscope_ggeur.settings import Objection, Objections

from .image_encoder import PIXELS
from .image_network import ImageNetwork
from .keys import NETWORK_KEYS, OWN


@register_other_model(OWN)
@dataclass(frozen=True)
class NetworkSettings(OtherModel):
    """The settings of an image network and of the preparation of its images.

    Attributes
    ----------
    name : str
        A name in `NETWORKS`, or ``timm:<model>``.
    stem : {"cifar", "imagenet"}
        The first layer of a ResNet: 3x3 without pooling ("cifar"), or 7x7 with stride 2
        and pooling ("imagenet").
    norm : {"batch", "layer", "group", "none"}
        The layers that replace the network's BatchNorm.
    mean, std : tuple of three float
        Means and standard deviations of the three channels, with pixels in 0..1. They
        normalise images. Images of one channel are normalised by their averages.
    augment : str
        The augmentation of training images, one of `inputs.AUGMENTATIONS`.
    weights : str
        The weights that training begins with: a file, the name of published weights, or
        "default". "" means random weights.
    precision : {"fp32", "tf32", "bf16"}
        The number format of convolutions and matrix products. "tf32" rounds their
        operands to 10 bits on a GPU, and does nothing on a CPU. "bf16" is torch's
        autocast, with 8 bits. Weights, sums and losses keep 32-bit floats.
    """

    name: str
    stem: str = "cifar"
    norm: str = "batch"
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    augment: str = "none"
    weights: str = ""
    precision: str = "fp32"

    takes_images: ClassVar[bool] = True

    @property
    def told(self) -> str:  # type: ignore[override]
        return f"network: {self.name}"

    @classmethod
    def of_run(cls, run: Any) -> NetworkSettings:
        alike = ("name", "stem", "norm", "augment", "weights", "precision")
        return cls(
            **{name: run[f"network.{name}"] for name in alike},
            mean=tuple(map(float, run["network.mean"])),
            std=tuple(map(float, run["network.std"])),
        )

    def build(
        self, in_features: int, num_classes: int, dropout: float = 0.0
    ) -> ImageNetwork:
        return ImageNetwork(in_features, num_classes, self, dropout)

    @classmethod
    def objections(cls, run: Any) -> Objections:
        """Yield settings that conflict with a network, or that need a network.

        Whether rows in files are pixels is only known once they are read, see
        `federation.rows.check_rows`.
        """
        if not run[OWN]:
            others = {key.name: [key.default] for key in NETWORK_KEYS}
            yield Objection(OWN, others, "because it is for a network; name a network")
            if run.reads_images and run["encoder.name"] == PIXELS:
                why = "whose pixels are for networks; name one, or take another encoder"
                yield Objection("encoder.name", {OWN: []}, why)
            return
        if run.reads_images:
            pixels = {"encoder.name": [PIXELS]}
            yield Objection(OWN, pixels, "which is trained on pixels")
        if run["augmentation"] == "ggeur":
            other = setting("augmentation")
            why = f"because GGEUR draws embeddings, not pixels; or take another {other}"
            yield Objection(OWN, {"steps": [[]]}, why)
        why = "because a closed form is computed from embeddings"
        yield Objection(OWN, {"closed_form": ["none"]}, why)
        yield Objection(OWN, {"mlp_hidden_dim": [0]}, "which has its own layers")
        why = f"which normalises pixels by {setting('network.mean')}"
        yield Objection(OWN, {"space": ["standard", "raw"]}, why)
        yield Objection(OWN, {"train_withheld": [True]}, "which trains on all rows")
