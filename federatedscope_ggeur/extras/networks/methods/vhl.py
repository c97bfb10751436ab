"""VHL (Tang et al., ICML 2022) with noise images: one fixed set for all clients."""

from __future__ import annotations

from functools import lru_cache

from torch import Tensor

from federatedscope_ggeur.methods.base import LocalContext, LocalHooks, Method
from federatedscope_ggeur.methods.registry import register_augmentation
from federatedscope_ggeur.rng import torch_generator

from ..keys import VHL_KEYS
from .virtual_images import (
    VirtualBatches,
    VirtualTerm,
    needs_images,
    shape_of,
    smooth_noise,
)


@register_augmentation("vhl")
class VHL(Method):
    """Adds ``virtual CE(g f(x'), y') + alignment l_fa`` on one fixed set of images.

    The set is blurred Gaussian noise. Each image has a label. Every client makes the
    same set from the run's seed, so nothing is sent. The authors draw images from an
    untrained StyleGAN. In their network virtual rows have C extra outputs, which are
    removed afterwards. Here virtual rows share the outputs of the C classes, as in
    FedPG. The alignment (`alignment.alignment`) acts in the first `align_epochs` passes
    over a client's own rows in every round.

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
        batches = VirtualBatches(images, model.num_classes, self.batch_size, rng)
        aligned = self.align_epochs * int(context.counts.sum())
        weights = self.virtual, self.alignment
        term = VirtualTerm(batches, *weights, self.temperature, aligned)
        return LocalHooks(loss_term=term)


@lru_cache(maxsize=1)
def noise_set(count: int, shape: tuple[int, int, int], seed: int) -> Tensor:
    """The noise images of a run as uint8 rows. Row i is of class i mod C."""
    return smooth_noise(count, shape, torch_generator(seed, "vhl"))
