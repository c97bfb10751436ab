"""Tiny federations of a network on pictures of 8 x 8 pixels."""

from __future__ import annotations

import torch
from by_bytes import CLASSES, Federation

from federatedscope_ggeur.extras.networks.image_network import NetworkSettings
from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings
from federatedscope_ggeur.models import ModelSettings, build_model

DIM = 64
SGD = {"momentum": 0.9, "weight_decay": 1e-3}
RATE = OptimizerSettings("SGD", 0.05, SGD)
WHOLE = TrainingSettings(RATE, 3, "epoch", 1000, shuffle=False)


def images(n, seed=0, dim=DIM):
    """Pictures whose class is the quarter that is bright."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (n,), generator=generator)
    pixels = torch.randint(128, (n, dim), generator=generator).view(
        n, CLASSES, dim // CLASSES
    )
    pixels[torch.arange(n), labels] += 100
    return pixels.view(n, dim).to(torch.uint8), labels


def settings_of(norm="batch", augment="none", name="digits_cnn"):
    return ModelSettings(other=NetworkSettings(name, norm=norm, augment=augment))


def make_model(**settings):
    model = build_model(DIM, CLASSES, settings_of(**settings))
    return model.reset(torch.Generator().manual_seed(3))


SIZES = (20, 32, 26)


def data(sizes=SIZES):
    return {k: (f"domain {k}", *images(n, k)) for k, n in enumerate(sizes, start=1)}


def federation(method=None, sizes=SIZES, norm="batch", augment="none", **options):
    options.setdefault("training", WHOLE)
    model = settings_of(norm, augment)
    return Federation(data(sizes), method, model=model, **options)
