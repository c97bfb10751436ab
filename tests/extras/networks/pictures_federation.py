"""Federations of tiny image networks, with the images that they train on."""

import torch
from by_bytes import CLASSES, Federation

from federatedscope_ggeur.extras.networks.image_network import NetworkSettings
from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings
from federatedscope_ggeur.models import ModelSettings

SIDE = 8
NETWORKS = {
    norm: ModelSettings(other=NetworkSettings("digits_cnn", norm=norm))
    for norm in ("batch", "group")
}
#: Batches of eight and an even number of rows: BatchNorm takes no batch of one.
LOCAL = TrainingSettings(
    OptimizerSettings("SGD", 0.05, {"momentum": 0.9}), 2, "epoch", 8
)


def images_of(n, seed, classes=CLASSES):
    """uint8 rows of noise with a bright line in a place of the class, and labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator)
    rows = torch.randint(120, (n, SIDE, SIDE), generator=generator)
    rows[torch.arange(n), 2 * labels] += 100
    return rows.flatten(1).to(torch.uint8), labels


def image_data(sizes=(20, 30, 26)):
    """Client number -> (domain, rows, labels)."""
    return {
        k: (f"domain {k}", *images_of(n, seed=k)) for k, n in enumerate(sizes, start=1)
    }


def federate_images(method, rounds=2, norm="batch", data=None, **options):
    """A federation after `rounds` rounds, with the `weights` of each."""
    options.setdefault("training", LOCAL)
    options.setdefault("model", NETWORKS[norm])
    federation = Federation(data or image_data(), method, **options)
    federation.weights = federation.run(rounds)
    return federation
