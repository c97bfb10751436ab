"""MixStyle (Zhou et al., 2021): mix statistics of feature maps between rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from federatedscope_ggeur.machine import sent
from federatedscope_ggeur.methods.base import LocalContext, LocalHooks, Method
from federatedscope_ggeur.methods.registry import register_augmentation
from federatedscope_ggeur.rng import numpy_generator

from ..keys import MIXSTYLE_KEYS
from .feature_statistics import BatchDraws, compose, decompose, stage_problem

#: The paper places layers after this many stages, from the first on.
_FIRST = 3


@register_augmentation("mixstyle")
class MixStyle(Method):
    """Mixes the mean and deviation of a map with those of another row of the batch.

    Mean mu and standard deviation sigma are over the pixels of a map X. The new map is
    ``X^ = sigma_mix (X - mu) / sigma + mu_mix`` with ``mu_mix = l mu + (1 - l) mu'``,
    and sigma_mix likewise. mu' is from another row, because the batch is permuted. l ~
    Beta(alpha, alpha) is drawn for each row. mu and sigma count as constants. Each
    layer acts on a batch with `probability`. With 0 the method is the base method, to
    the bit. Labels stay, and nothing is sent.
    """

    meaning = "mixes the statistics of feature maps between the rows of a batch"
    source = "Zhou 2021"
    SETTINGS = MIXSTYLE_KEYS

    probability: float
    alpha: float
    stages: Sequence[int]

    def model_problem(self, model):
        return stage_problem(model, self.stages, "stages")

    def local(self, context: LocalContext) -> LocalHooks:
        if not self.probability:
            return LocalHooks()
        numbers = self.stages or range(1, _FIRST + 1)
        stages = {int(number) - 1 for number in numbers}
        active = context.generator("mixstyle-active")
        partners = context.generator("mixstyle-partner")
        key = context.client, "mixstyle-share", context.round_number
        shares = numpy_generator(context.seed, *key)

        def draw(k: int, maps: Tensor):
            if torch.rand((), generator=active) >= self.probability:
                return None
            rows = len(maps)
            other = sent(torch.randperm(rows, generator=partners), maps.device)
            drawn = torch.from_numpy(shares.beta(self.alpha, self.alpha, (rows, 1)))
            return other, sent(drawn.to(maps.dtype), maps.device)

        draws = BatchDraws(draw)

        def stage(k: int, maps: Tensor) -> Tensor:
            drawn = draws.of(k, maps)[0] if k in stages else None
            return maps if drawn is None else mixed(maps, *drawn)

        return LocalHooks(stage=stage, transform=draws.new_batch)


def mixed(maps: Tensor, other: Tensor, share: Tensor) -> Tensor:
    """Mix the statistics of maps [B, C, H, W] with those of the rows `other` [B].

    `share` [B, 1] is the share of a row's own statistics in the mixture.
    """
    with torch.no_grad():
        _, mean, std = decompose(maps)
        mixed_mean = torch.lerp(mean[other], mean, share)
        scale = torch.lerp(std[other], std, share) / std
    # X - mu is computed again, because no gradient may flow through mu.
    centred = maps.flatten(2) - mean[..., None]
    return compose(centred, mixed_mean, scale).view_as(maps)
