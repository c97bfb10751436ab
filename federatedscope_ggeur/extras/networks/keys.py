"""The keys of networks, and of the methods that need one; the names of networks.

Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from federatedscope_ggeur.errors import did_you_mean
from federatedscope_ggeur.settings import (
    Key,
    Registry,
    Section,
    amount,
    batch_rows,
    below,
    fraction,
    is_number,
    key,
    keys_of_parts,
    layer_width,
    not_negative,
    one_of,
    positive,
    positive_or_not_set,
    rule_of,
    whole,
)

#: The setting that chooses a network.
OWN = "network.name"

#: The networks by name. The network itself interprets the text after a colon.
NETWORKS: Registry[Callable[..., Any]] = Registry("network", OWN)
_FILES = {"resnet18": "resnet", "resnet34": "resnet", "resnet50": "resnet"}
_NAMES = ("alexnet_bn", "convnet5", "digits_cnn", *_FILES, "simple_cnn", "timm")
_FOLDER = f"{__package__}.architectures"
NETWORKS.expect({name: f"{_FOLDER}.{_FILES.get(name, name)}" for name in _NAMES})


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


def _floats(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(map(float, values))


_means = rule_of("must be three numbers", _three)
_deviations = rule_of(
    "must be three numbers above 0",
    lambda values: _three(values) and all(v > 0 for v in values),
)
_means.read = _deviations.read = _floats  # type: ignore[attr-defined]


class NetworkKeys(Section):
    """The settings of a network."""

    PREFIX = "network."

    name: str = key(
        "",
        "A network to train on pixels, in place of a head on embeddings: a name from "
        "docs/networks.md, timm:<model> or one of your own; '': a head. A network "
        "needs ggeur.encoder.name image.",
        _name,
        shared=True,
    )
    stem: str = key(
        "cifar",
        "First layers of a ResNet. cifar: 3x3, without pooling. imagenet: 7x7 with "
        "stride 2, and pooling.",
        one_of("cifar", "imagenet"),
        shared=True,
    )
    norm: str = key(
        "batch",
        "Layers in the place of BatchNorm: batch (BatchNorm itself), layer, group (at "
        "most 32 groups) or none.",
        one_of("batch", "layer", "group", "none"),
        shared=True,
    )
    mean: tuple[float, ...] = key(
        (0.5, 0.5, 0.5),
        "Mean of red, green and blue, in 0..1, that is subtracted from pixels.",
        _means,
        shared=True,
    )
    std: tuple[float, ...] = key(
        (0.5, 0.5, 0.5),
        "Standard deviation of red, green and blue that pixels are then divided by.",
        _deviations,
        shared=True,
    )
    augment: str = key(
        "none",
        "Augmentation of training images. none: none. crop_flip: shift by up to 4 "
        "pixels, mirror. flip_rotate: mirror, rotate by up to 30 degrees. "
        "resized_crop: cut out 70 to 100 %, mirror, change colours.",
        one_of("none", "crop_flip", "flip_rotate", "resized_crop"),
        shared=True,
    )
    weights: str = key(
        "",
        "Weights that training starts from: a file (.safetensors or a state dict), "
        "default, or the name of weights of torchvision or timm; '': random weights. "
        "A last layer for other classes starts at random.",
    )
    precision: str = key(
        "fp32",
        "Number format of the network's convolutions and matrix products: fp32, tf32 "
        "(10 bits, several times faster on a GPU; on a CPU it is fp32) or bf16 (8 "
        "bits).",
        one_of("fp32", "tf32", "bf16"),
    )


def _are_stages(value: object) -> bool:
    if not isinstance(value, (list, tuple)):
        return False
    whole = all(is_number(v) and v == v // 1 and v >= 1 for v in value)
    return whole and list(value) == sorted(set(value))


#: The rule of a setting that lists stages. [] leaves the choice to the method.
stage_numbers = rule_of(
    "must be an ascending list of stages, whole numbers from 1", _are_stages
)

#: Of `methods.fedfa_plus`.
FEDFA_PLUS_KEYS = (
    Key(
        "variant",
        "plus",
        "l, h, or plus for both; c, c2, r and direct are ablations.",
        one_of("l", "plus", "direct", "h", "c", "c2", "r"),
    ),
    Key("probability", 0.5, "Probability that a layer adds its noise.", fraction()),
    Key("momentum", 0.99, "Momentum of the running means of statistics.", below(1)),
    Key(
        "debias",
        True,
        "Correct the running means for their start at zero. False follows the "
        "paper to the letter.",
        one_of(True, False),
    ),
    Key("bins", 8, "Number of bins of a histogram.", whole(3, maximum=1024)),
    Key("weight", 0.1, "Weight of the loss that aligns histograms.", not_negative),
    Key("temperature", 0.01, "Temperature of the soft bins.", positive),
    Key(
        "stages",
        [],
        "Stages of the network with a layer, counted from 1; []: all.",
        stage_numbers,
    ),
    Key(
        "align_stages",
        [],
        "Stages of the network whose histograms are aligned, counted from 1; []: "
        "the last.",
        stage_numbers,
    ),
    Key("noise", 1.0, "Standard deviation of the layers' noise e.", positive),
)


def _of_images(what: str, batch_size: float) -> tuple[Key, ...]:
    """The keys of a method that trains on a set of images called `what`."""
    in_a_step = f"{what.capitalize()} images in each training step of a client."
    return (
        Key("images_per_class", 64, f"Number of {what} images of a class.", amount),
        Key("batch_size", batch_size, in_a_step, batch_rows),
        Key("virtual", 1.0, f"Weight of cross-entropy on {what} images.", not_negative),
        Key("alignment", 1.0, "Weight of the alignment loss.", not_negative),
        Key("temperature", 0.07, "Temperature of the alignment loss.", positive),
    )


#: Of `methods.fedpg`.
FEDPG_KEYS = (
    *_of_images("virtual", 64.0),
    Key(
        "support",
        20,
        "Number m of rows of a class in a client's prototype, at least "
        "privacy.min_samples. A class with fewer rows takes all.",
        whole(1),
    ),
    Key(
        "source",
        "generator",
        "Where virtual images come from: a generator, or noise that never changes.",
        one_of("generator", "noise"),
    ),
    Key("noise_dim", 512, "Dimensions of the generator's noise.", layer_width),
    Key("lr", 2e-5, "Learning rate of the generator's Adam.", positive),
    Key(
        "prototype_lr",
        None,
        "Learning rate of the virtual prototypes' Adam; -1: as fedpg.lr.",
        positive_or_not_set,
    ),
    Key("steps", 300, "Training steps of the generator in a round.", amount),
    Key("generator_batch", 128, "Images in each of these steps.", batch_rows),
    Key(
        "scale",
        2.0,
        "Factor of the squared distances in the generator's softmax.",
        positive,
    ),
    Key("strength", 0.001, "Weight lambda_s of the prototype loss.", not_negative),
    Key(
        "prototypes",
        "redrawn",
        "Values of the virtual prototypes at the start of a round: redrawn (new "
        "random values) or global (the clients' prototypes).",
        one_of("redrawn", "global"),
    ),
    Key(
        "constraint",
        True,
        "Pull virtual prototypes towards the clients' prototypes.",
        one_of(True, False),
    ),
    Key(
        "until_round",
        None,
        "The last round with virtual images; -1: every round has them.",
        whole(0, not_set_allowed=True),
    ),
)

#: Of `methods.mixstyle`.
MIXSTYLE_KEYS = (
    Key("probability", 0.5, "Probability that a layer mixes statistics.", fraction()),
    Key(
        "alpha",
        0.1,
        "Parameter of Beta(alpha, alpha), which draws the share of its own "
        "statistics that a row keeps.",
        positive,
    ),
    Key(
        "stages",
        [],
        "Stages of the network with a layer, counted from 1; []: the first three.",
        stage_numbers,
    ),
)

#: Of `methods.vhl`.
VHL_KEYS = (
    *_of_images("noise", 128.0),
    Key(
        "align_epochs",
        5,
        "Epochs of each round in which a client's rows are aligned with noise images.",
        whole(0),
    ),
)

#: The keys of methods, by the method's name.
OF_METHODS = {
    "fedfa_plus": FEDFA_PLUS_KEYS,
    "fedpg": FEDPG_KEYS,
    "mixstyle": MIXSTYLE_KEYS,
    "vhl": VHL_KEYS,
}

#: All keys, by their full names.
KEYS = (*NetworkKeys.declared(), *keys_of_parts(OF_METHODS))
