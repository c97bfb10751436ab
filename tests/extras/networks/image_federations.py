"""Federations of tiny networks on 8 x 8 pictures that differ from client to client."""

import torch
from by_bytes import CLASSES, Federation
from federations import MOMENTUM as RATE

from federatedscope_ggeur.extras.networks.image_network import NetworkSettings
from federatedscope_ggeur.federation import TrainingSettings
from federatedscope_ggeur.models import ModelSettings, build_model

SIDE = 8
DIM = SIDE**2
SIZES = (20, 24, 28)
#: Batches of eight and an even number of rows: BatchNorm takes no batch of one.
TRAINING = TrainingSettings(RATE, 2, "epoch", 8)
#: With running statistics, and without.
NORMS = ("batch", "group")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def settings_of(name="digits_cnn", **settings):
    return ModelSettings(other=NetworkSettings(name, **settings))


def make_model(dim=DIM, **settings):
    model = build_model(dim, CLASSES, settings_of(**settings))
    return model.reset(seeded(3))


def images(n, seed=0, dim=DIM):
    """Rows [n, dim] of uint8, and labels: a bright stripe where the class says, on a
    ground that is the seed's."""
    generator = seeded(seed)
    labels = torch.randint(CLASSES, (n,), generator=generator)
    rows = torch.rand(n, CLASSES, dim // CLASSES, generator=generator) * 60 + 30 * seed
    rows[torch.arange(n), labels, :SIDE] += 90
    return rows.to(torch.uint8).view(n, dim), labels


def make_image_data(sizes=SIZES):
    """Client number -> (domain, rows, labels)."""
    return {k: (f"domain {k}", *images(n, k)) for k, n in enumerate(sizes, start=1)}


def federation(method=None, data=None, norm="batch", augment="none", **options):
    """A server and its clients, which train by `TRAINING`."""
    options.setdefault("training", TRAINING)
    model = settings_of(norm=norm, augment=augment)
    return Federation(data or make_image_data(), method, model=model, **options)


def begun(method, data=None, **options):
    """A federation after round 0."""
    return federation(method, data, **options).round0()


def federate_images(method, rounds=2, **options):
    """A federation after `rounds` rounds, with the `weights` of each."""
    made = federation(method, **options)
    made.weights = made.run(rounds)
    return made
