"""VHL (Tang et al., ICML 2022) with noise images: one fixed set for all clients.

Sets of labelled virtual images, the same for every client, and training on them.

A set is uint8 rows of shape (C v, D), with v rows for each class. Row i is of class i
mod C, so labels need not be sent.

A supervised contrastive loss, which brings representations of one class together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.machine import sent
from federatedscope_ggeur.methods.base import LocalContext, LocalHooks, Method
from federatedscope_ggeur.methods.contexts import Batch
from federatedscope_ggeur.methods.registry import register_augmentation
from federatedscope_ggeur.models import Model
from federatedscope_ggeur.rng import torch_generator

from ..base import image_shape
from ..keys import VHL_KEYS

#: The weight of the loss among virtual rows, from the code of VHL and FedPG.
_AMONG_VIRTUAL = 0.1


def supervised_contrastive(z: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """The supervised contrastive loss: low if rows are nearest to rows of their class.

    Parameters
    ----------
    z : Tensor of shape (N, D')
        The representations. They are scaled to length 1, so only directions count.
    labels : Tensor of shape (N,)
    temperature : float

    Returns
    -------
    Tensor of shape ()
        ``-(1/N) sum_i (1/max(1, |J_i|)) sum_{j in J_i} (s_ij - log sum_{a != i}
        e^{s_ia})`` with s_ij = u_i . u_j / temperature. J_i are the other rows of i's
        class. If there are none, row i adds 0.

    Notes
    -----
    This is Eq. 2 of Khosla et al. (2020). The sum over positives is outside the
    logarithm.
    """
    if len(z) < 2:
        return z.sum() * 0.0
    u = F.normalize(z, dim=1)
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    s = (u @ u.T / temperature).masked_fill(itself, -torch.inf)
    positive = (labels[:, None] == labels) & ~itself
    log_share = (s - s.logsumexp(dim=1, keepdim=True)).masked_fill(~positive, 0.0)
    return -(log_share.sum(dim=1) / positive.sum(dim=1).clamp(min=1)).mean()


def alignment(
    z: Tensor,
    labels: Tensor,
    virtual_z: Tensor,
    virtual_labels: Tensor,
    temperature: float,
) -> Tensor:
    """The loss, a scalar, that pulls rows z [n, D'] towards virtual rows of their
    class.

    It is ``SupCon([z; sg(z')], [y; y']) + 0.1 SupCon(z', y')`` for virtual rows z' [m,
    D']. sg stops the gradient, so that the first part moves only own rows. This is Eq.
    11 of FedPG as in its code, which follows VHL's code. The printed equation has own
    and other classes on the two sides of a fraction, and so has no lower bound.
    """
    rows = torch.cat([z, virtual_z.detach()])
    both = torch.cat([labels, virtual_labels])
    among = supervised_contrastive(virtual_z, virtual_labels, temperature)
    return supervised_contrastive(rows, both, temperature) + _AMONG_VIRTUAL * among


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
    guess = model.in_chunks(lambda x: model(x).argmax(dim=1), images).to(images.device)
    return float((guess == labels_of(images, model.num_classes)).double().mean())


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


def virtual_batches(
    images: Tensor, num_classes: int, size: int, rng: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches (rows [B, D], labels [B]) of a set without end.

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
    labels, left = labels_of(images, num_classes), torch.zeros(0, dtype=torch.int64)
    while True:
        while len(left) < size:
            order = torch.randperm(len(images), generator=rng)
            left = torch.cat([left, order])
        rows, left = left.split([size, len(left) - size])
        rows = sent(rows, images.device)
        yield images[rows], labels[rows]


class VirtualTerm:
    """The loss term ``virtual CE(g f(x'), y') + alignment l(f(x), y, f(x'), y')``.

    An object is a `LocalHooks.loss_term`. Every batch of own rows gets the next virtual
    batch (x', y'); FedSAM's second pass over own rows gets the same virtual batch.
    Virtual rows are not augmented. Running statistics use only own rows, because else
    half of them would come from virtual rows.

    Parameters
    ----------
    batches : iterator of (rows, labels)
        The virtual batches; see `virtual_batches`.
    virtual, alignment : float
        The weights of the two parts. A part of weight 0 is not computed.
    temperature : float
        The temperature of the alignment.
    aligned_rows : float
        The number of own rows after which the alignment ends.
    """

    def __init__(
        self,
        batches: Iterator[tuple[Tensor, Tensor]],
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


@register_augmentation("vhl")
class VHL(Method):
    """Adds ``virtual CE(g f(x'), y') + alignment l_fa`` on one fixed set of images.

    The set is blurred Gaussian noise. Each image has a label. Every client makes the
    same set from the run's seed, so nothing is sent. The authors draw images from an
    untrained StyleGAN. In their network virtual rows have C extra outputs, which are
    removed afterwards. Here virtual rows share the outputs of the C classes, as in
    FedPG. The alignment acts in the first `align_epochs` passes over a client's own
    rows in every round.

    With `virtual` and `alignment` 0 the method is FedAvg, to the bit.
    """

    meaning = "trains also on one fixed set of smooth noise images for all clients"
    source = "Tang 2022 (VHL), without its StyleGAN and extra outputs"
    SETTINGS = VHL_KEYS
    lower_if_diverging = ("virtual", "alignment")

    images_per_class: int
    batch_size: int
    virtual: float
    alignment: float
    temperature: float
    align_epochs: int

    def model_problem(self, model):
        return needs_images(model)

    def local(self, context: LocalContext) -> LocalHooks:
        if not (self.virtual or self.alignment):
            return LocalHooks()
        model, device = context.model, context.weights.device
        count = self.images_per_class * model.num_classes
        images = noise_set(count, shape_of(model), context.seed).to(device)
        rng = context.generator("vhl")
        batches = virtual_batches(images, model.num_classes, self.batch_size, rng)
        aligned = self.align_epochs * int(context.counts.sum())
        weights = self.virtual, self.alignment
        term = VirtualTerm(batches, *weights, self.temperature, aligned)
        return LocalHooks(loss_term=term)


@lru_cache(maxsize=1)
def noise_set(count: int, shape: tuple[int, int, int], seed: int) -> Tensor:
    """The noise images of a run as uint8 rows. Row i is of class i mod C."""
    return smooth_noise(count, shape, torch_generator(seed, "vhl"))
