"""Federations of tiny image networks on noise with a bright line."""

import image_federations
import torch
from by_bytes import CLASSES
from image_federations import SIDE


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
    held = data or image_data()
    return image_federations.federate_images(method, rounds, norm, held, **options)
