"""The keys `ggeur.network.*`: the network that is trained, and its images."""

from __future__ import annotations

from typing import Any

from federatedscope_ggeur.errors import did_you_mean, setting
from federatedscope_ggeur.settings import (
    Key,
    Objection,
    Objections,
    is_number,
    one_of,
    rule_of,
    text,
)

from .base import NETWORKS, NORMS, PRECISIONS, STEMS, NetworkSettings
from .inputs import AUGMENTATIONS

#: The encoder whose rows are pixels.
PIXELS = "image"
_OWN = "network.name"
_DEFAULT = NetworkSettings("")


def _name(value: object) -> str:
    """The rule of `network.name`: "" or the name of a registered network."""
    names = ["timm:<model>" if name == "timm" else name for name in NETWORKS]
    if not isinstance(value, str):
        return f"must be a text, got {value!r}"
    base, colon, rest = value.partition(":")
    fits = base in NETWORKS and bool(colon and rest) == (base == "timm")
    if fits or not value:
        return ""
    near = did_you_mean(value, names)
    return f"must be one of {', '.join(names)}; got {value!r}{near}"


def _three(values: object) -> bool:
    if not isinstance(values, (list, tuple)) or len(values) != 3:
        return False
    return all(is_number(value) for value in values)


_means = rule_of("must be three numbers", _three)
_deviations = rule_of(
    "must be three numbers above 0",
    lambda values: _three(values) and all(v > 0 for v in values),
)

NETWORK_KEYS = (
    Key(
        "network.name",
        _DEFAULT.name,
        "A network to train on pixels, in place of a head on embeddings: a name from "
        "docs/networks.md, timm:<model> or one of your own; '': a head. A network "
        "needs ggeur.encoder.name image.",
        _name,
        shared=True,
    ),
    Key(
        "network.stem",
        _DEFAULT.stem,
        "First layers of a ResNet. cifar: 3x3, without pooling. imagenet: 7x7 with "
        "stride 2, and pooling.",
        one_of(*STEMS),
        shared=True,
    ),
    Key(
        "network.norm",
        _DEFAULT.norm,
        "Layers in the place of BatchNorm: batch (BatchNorm itself), layer, group (at "
        "most 32 groups) or none.",
        one_of(*NORMS),
        shared=True,
    ),
    Key(
        "network.mean",
        list(_DEFAULT.mean),
        "Mean of red, green and blue, in 0..1, that is subtracted from pixels.",
        _means,
        shared=True,
    ),
    Key(
        "network.std",
        list(_DEFAULT.std),
        "Standard deviation of red, green and blue that pixels are then divided by.",
        _deviations,
        shared=True,
    ),
    Key(
        "network.augment",
        _DEFAULT.augment,
        "Augmentation of training images. none: none. crop_flip: shift by up to 4 "
        "pixels, mirror. flip_rotate: mirror, rotate by up to 30 degrees. "
        "resized_crop: cut out 70 to 100 %, mirror, change colours.",
        one_of(*AUGMENTATIONS),
        shared=True,
    ),
    Key(
        "network.weights",
        _DEFAULT.weights,
        "Weights that training starts from: a file (.safetensors or a state dict), "
        "default, or the name of weights of torchvision or timm; '': random weights. "
        "A last layer for other classes starts at random.",
        text,
    ),
    Key(
        "network.precision",
        _DEFAULT.precision,
        "Number format of the network's convolutions and matrix products: fp32, tf32 "
        "(10 bits, several times faster on a GPU; on a CPU it is fp32) or bf16 (8 "
        "bits).",
        one_of(*PRECISIONS),
    ),
)


def objections(run: Any) -> Objections:
    """Yield settings that conflict with a network, or that need a network.

    Whether rows in files are pixels is only known once they are read, see
    `federation.rows.check_rows`.
    """
    if not run[_OWN]:
        others = {key.name: [key.default] for key in NETWORK_KEYS}
        yield Objection(_OWN, others, "because it is for a network; name a network")
        if run.reads_images and run["encoder.name"] == PIXELS:
            why = "whose pixels are for networks; name one, or take another encoder"
            yield Objection("encoder.name", {_OWN: []}, why)
        return
    if run.reads_images:
        pixels = {"encoder.name": [PIXELS]}
        yield Objection(_OWN, pixels, "which is trained on pixels")
    if run["augmentation"] == "ggeur":
        other = setting("augmentation")
        why = f"because GGEUR draws embeddings, not pixels; or take another {other}"
        yield Objection(_OWN, {"steps": [[]]}, why)
    why = "because a closed form is computed from embeddings"
    yield Objection(_OWN, {"closed_form": ["none"]}, why)
    yield Objection(_OWN, {"mlp_hidden_dim": [0]}, "which has its own layers")
    why = f"which normalises pixels by {setting('network.mean')}"
    yield Objection(_OWN, {"space": ["standard", "raw"]}, why)
    yield Objection(_OWN, {"train_withheld": [True]}, "which trains on all rows")
