"""The layers of FedFA on one client in one round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from federatedscope_ggeur.methods.base import LocalContext
from federatedscope_ggeur.methods.networks.feature_statistics import (
    EPS,
    RunningStatistics,
    shaken,
)
from federatedscope_ggeur.methods.networks.stages import BatchDraws

if TYPE_CHECKING:
    from federatedscope_ggeur.methods.networks.fedfa_plus import FedFAPlus

#: Variants whose gamma stays what it is; without a variance of its own, FedFA-R's -1.
FIXED = {"c": 0.0, "c2": 1.0, "r": -1.0}
#: What FedFA-R has in its place: the noise's standard deviation.
DEVIATION = 0.5


class Layers:
    """The layers of one client in one round, as `LocalHooks.stage` has them.

    Attributes
    ----------
    aligned : list of int
        Stages whose maps are kept, averaged over pixels, in `pooled` [B, C]: of the
        batch at hand and after the layer.
    """

    def __init__(self, method: FedFAPlus, context: LocalContext):
        model = context.model
        self.method, self.min_samples = method, context.min_samples
        self.aligned = method.aligned_stages(model) if method.aligns else []
        self.pooled: dict[int, Tensor] = {}
        self.stages = method.shaken_stages(model) if method.shakes else []
        self.draws = BatchDraws(self._draw)
        self._floor = DEVIATION**2 if method.variant == "r" else EPS
        self._active = context.generator("ffa-active")
        self._noise = context.generator("ffa-noise")
        widths = [model.stage_widths[k] for k in self.stages]
        device = context.broadcast.device
        self.running = {
            k: RunningStatistics(width, method.momentum, device)
            for k, width in zip(self.stages, widths)
        }
        self.factors = _factors(method, context.download, self.stages, widths)

    def __call__(self, stage: int, maps: Tensor) -> Tensor:
        if stage in self.running:
            noise, is_new = self.draws.of(stage, maps)
            if noise is not None:
                maps = self._shaken(stage, maps, noise, is_new)
        if stage in self.aligned:
            self.pooled[stage] = pooled(maps)
        return maps

    def _draw(self, stage: int, maps: Tensor) -> list[Tensor] | None:
        """e of mu and of sigma, [B, C] each; None where the layer does not act."""
        # Two generators: the probability must not shift the noise.
        if torch.rand((), generator=self._active) >= self.method.probability:
            return None
        return [
            self.method.noise
            * torch.randn(maps.shape[:2], generator=self._noise).to(maps.device)
            for _ in range(2)
        ]

    def _shaken(self, stage: int, maps: Tensor, noise, is_new: bool) -> Tensor:
        of_mean, of_std = noise
        factors = self.factors[stage]
        new, mean, std = shaken(maps, *factors, of_mean, of_std, self._floor)
        if self.method.learns and is_new:
            self.running[stage].add(mean, std, len(maps))
        return new

    def statistics(self, enough: bool) -> dict[str, Tensor]:
        """What goes up: `mu` and `sigma` [sum C_k], 0 where withheld, and `rows` [K].

        Nothing without `enough` rows in the client's set.
        """
        parts = []
        for running in self.running.values():
            mean, std = running.debiased if self.method.debias else running.biased
            # The rounding of a share of exactly 1 / min_samples must not withhold it.
            told = (
                enough
                and running.rows >= self.min_samples
                and running.largest_share * self.min_samples <= 1 + 1e-9
            )
            parts.append((mean * told, std * told, running.rows * told))
        means, stds, rows = zip(*parts)
        return {
            "mu": torch.cat(means),
            "sigma": torch.cat(stds),
            "rows": torch.tensor(rows),
        }


def _factors(
    method: FedFAPlus, download: Mapping[str, Tensor], stages, widths
) -> dict[int, tuple[Tensor | float, Tensor | float]]:
    """What multiplies the batch's variances of mu and of sigma, by stage."""
    if method.variant in FIXED:
        return dict.fromkeys(stages, (FIXED[method.variant] + 1,) * 2)
    if not method.learns:
        return {}
    gammas = (download[f"gamma_{name}"].split(widths) for name in ("mu", "sigma"))
    return {k: (mu + 1, sigma + 1) for k, mu, sigma in zip(stages, *gammas)}


def pooled(maps: Tensor) -> Tensor:
    """The mean over the pixels of maps [B, C, H, W]: shape (B, C)."""
    return maps.flatten(2).mean(dim=2)
