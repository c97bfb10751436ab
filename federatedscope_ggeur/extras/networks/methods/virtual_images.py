"""Sets of labelled virtual images, the same for every client, and training on them.

A set is uint8 rows of shape (C v, D), with v rows for each class. Row i is of class i
mod C, so labels need not be sent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.machine import sent
from federatedscope_ggeur.methods.contexts import Batch
from federatedscope_ggeur.models import Model

from ..base import image_shape
from .alignment import alignment

Shape = tuple[int, int, int]
#: The side of the square over which each of the two blurs averages.
_BLUR = 5


def labels_of(images: Tensor, num_classes: int) -> Tensor:
    """The labels of a set's rows: 0, 1, ..., C-1, 0, 1, ..."""
    return torch.arange(len(images), device=images.device) % num_classes


def to_pixels(images: Tensor) -> Tensor:
    """Round numbers in [-1, 1] to uint8 pixels. The error is at most 1/255."""
    return ((images + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)


def as_inputs(model: Model, images: Tensor) -> Tensor:
    """Prepare images [n, D] in [-1, 1] for `model`. Gradients flow through."""
    return model.prepare((images + 1) / 2)


def virtual_accuracy(model: Model, images: Tensor) -> float:
    """The share of a set's rows for which `model` predicts the label."""
    found = model.in_chunks(lambda x: model(x).argmax(dim=1), images).to(images.device)
    return float((found == labels_of(images, model.num_classes)).double().mean())


def uniform_noise(count: int, shape: Shape, rng: torch.Generator) -> Tensor:
    """Draw `count` images of `shape` (c, h, w) from uniform noise: uint8 rows."""
    size = count, math.prod(shape)
    return torch.randint(256, size, generator=rng, dtype=torch.uint8)


def smooth_noise(count: int, shape: Shape, rng: torch.Generator) -> Tensor:
    """Draw `count` images of `shape` (c, h, w) from noise blurred twice: uint8 rows.

    The noise is Gaussian. Each image is scaled to mean 0 and standard deviation 1/2,
    with pixels in -1..1.
    """
    noise = torch.randn(count, *shape, generator=rng)
    for _ in range(2):
        padded = F.pad(noise, (_BLUR // 2,) * 4, mode="replicate")
        noise = F.avg_pool2d(padded, _BLUR, stride=1)
    noise = noise.flatten(1)
    noise = noise - noise.mean(dim=1, keepdim=True)
    deviation = noise.square().mean(dim=1, keepdim=True).sqrt()
    return to_pixels(0.5 * noise / deviation.clamp(min=1e-6))


def needs_images(model: Model) -> str:
    """Why `model` cannot train on virtual images; "" if it can."""
    if model.takes_images:
        return ""
    return (
        "trains on images, but the model is a head on embeddings; set "
        f"{setting('network.name')}, or take another augmentation"
    )


def shape_of(model: Model) -> Shape:
    """The shape (c, h, w) of the images that `model` takes."""
    image = image_shape(model.in_features)
    return image.channels, image.side, image.side


class VirtualBatches(Iterator[tuple[Tensor, Tensor]]):
    """Yields batches (rows [B, D], labels [B]) of a set without end.

    Parameters
    ----------
    images : Tensor of shape (C v, D)
    num_classes : int
    size : int
        The batch size B. A batch may contain the end of one pass over the set and the
        start of the next.
    rng : torch.Generator
        The generator that draws the order of each pass.
    """

    def __init__(
        self, images: Tensor, num_classes: int, size: int, rng: torch.Generator
    ):
        self._images, self._labels = images, labels_of(images, num_classes)
        self._size, self._rng = size, rng
        self._left = torch.zeros(0, dtype=torch.int64)

    def __next__(self) -> tuple[Tensor, Tensor]:
        while len(self._left) < self._size:
            order = torch.randperm(len(self._images), generator=self._rng)
            self._left = torch.cat([self._left, order])
        rows, self._left = self._left.split([self._size, len(self._left) - self._size])
        rows = sent(rows, self._images.device)
        return self._images[rows], self._labels[rows]


class VirtualTerm:
    """The loss term ``virtual CE(g f(x'), y') + alignment l(f(x), y, f(x'), y')``.

    An object is a `LocalHooks.loss_term`. Every batch of own rows gets the next virtual
    batch (x', y'); FedSAM's second pass over own rows gets the same virtual batch.
    Virtual rows are not augmented. Running statistics use only own rows, because else
    half of them would come from virtual rows.

    Parameters
    ----------
    batches : VirtualBatches
    virtual, alignment : float
        The weights of the two parts. A part of weight 0 is not computed.
    temperature : float
        The temperature of the alignment.
    aligned_rows : float
        The number of own rows after which the alignment ends.
    """

    def __init__(
        self,
        batches: VirtualBatches,
        virtual: float,
        alignment: float,
        temperature: float,
        aligned_rows: float = math.inf,
    ):
        self._batches, self._temperature = batches, temperature
        self._virtual, self._alignment = virtual, alignment
        self._aligned_rows, self._seen = aligned_rows, 0
        self._own: Tensor | None = None

    def __call__(self, model: Model, batch: Batch) -> Tensor:
        if batch.features is not self._own:
            self._own, self._rows = batch.features, next(self._batches)
            self._aligns = self._alignment > 0 and self._seen < self._aligned_rows
            self._seen += len(batch.labels)
        rows, labels = self._rows
        with model.frozen_statistics():
            z = model.represent(model.prepare(rows))
            term = z.new_zeros(())
            if self._virtual:
                logits = model.classify(z)
                term = term + self._virtual * F.cross_entropy(logits, labels)
        if self._aligns:
            own = batch.representation, batch.labels
            pull = alignment(*own, z, labels, self._temperature)
            term = term + self._alignment * pull
        return term
