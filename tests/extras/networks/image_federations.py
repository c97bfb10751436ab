"""Federations of tiny networks on 8 x 8 pictures that differ from client to client."""

from __future__ import annotations

import torch
from by_bytes import CLASSES, Federation

from federatedscope_ggeur.extras.networks.image_network import NetworkSettings
from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings
from federatedscope_ggeur.models import ModelSettings

SIDE = 8
#: With running statistics, and without.
NETWORKS = {
    norm: ModelSettings(other=NetworkSettings("digits_cnn", norm=norm))
    for norm in ("batch", "group")
}
#: Batches of eight and an even number of rows: BatchNorm takes no batch of one.
TRAINING = TrainingSettings(
    OptimizerSettings("SGD", 0.05, {"momentum": 0.9}), 2, "epoch", 8
)


def make_image_data(sizes=(20, 24, 28)):
    """Client number -> (domain, rows [n, 64] of uint8, labels): a bright stripe where
    the class says, on a ground that is the client's."""
    data = {}
    for k, n in enumerate(sizes, start=1):
        generator = torch.Generator().manual_seed(k)
        labels = torch.randint(CLASSES, (n,), generator=generator)
        pictures = torch.rand(n, SIDE, SIDE, generator=generator) * 60 + 30 * k
        pictures[torch.arange(n), 2 * labels] += 90
        data[k] = (f"domain {k}", pictures.to(torch.uint8).flatten(1), labels)
    return data


def image_federation(data, method, network="batch", **options):
    """A server and its clients; `network` is one of `NETWORKS`."""
    options.setdefault("training", TRAINING)
    options.setdefault("model", NETWORKS[network])
    return Federation(data, method, **options)


def federate_images(method, rounds=2, network="batch", data=None, **options):
    """A federation after `rounds` rounds, with the `weights` of each."""
    data = data or make_image_data()
    federation = image_federation(data, method, network, **options)
    federation.weights = federation.run(rounds)
    return federation
