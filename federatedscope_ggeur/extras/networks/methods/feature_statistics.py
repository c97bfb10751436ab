"""Channel statistics of feature maps, and maps with changed statistics.

This is the maths of FedFA's augmentation layer (FedFA+, Eqs. 2-10) and of MixStyle, on
maps [B, C, H, W]. Variances are divided by n, as in the paper. So a batch of one row,
or a map of one pixel, has variance 0.

Rules and draws for methods that act on a network's stages.

Settings number stages from 1. Calls of `LocalHooks.stage` number them from 0.

Histograms with soft bins, and their divergence (FedFA+, Eqs. 11-14).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from federatedscope_ggeur.machine import sent
from federatedscope_ggeur.models import Model

#: Added under every square root, so that no quotient or gradient is infinite.
EPS = 1e-6


def decompose(maps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Split maps X into ``X - mu``, mu and sigma, for each row and channel (Eq. 2).

    Returns
    -------
    centred : Tensor of shape (B, C, H W)
    mean, std : Tensor of shape (B, C)
        std is ``sqrt(mean_hw (X - mu)^2 + EPS)``.
    """
    pixels = maps.flatten(2)
    mean = pixels.mean(dim=2)
    centred = pixels - mean[..., None]
    return centred, mean, (centred.square().mean(dim=2) + EPS).sqrt()


def compose(centred: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """Give maps another mean and scale: ``scale (X - mu) + mean``, shape (B, C, H W).

    `mean` and `scale` are [B, C].
    """
    return torch.addcmul(mean[..., None], centred, scale[..., None])


def shaken(
    maps: Tensor,
    mean_factor: Tensor | float,
    std_factor: Tensor | float,
    mean_noise: Tensor,
    std_noise: Tensor,
    floor: float = EPS,
) -> tuple[Tensor, Tensor, Tensor]:
    """FedFA's layer: noise changes the mu and sigma of maps (Eqs. 4 and 8-10).

    The new mean is ``mu^ = mu + e sqrt(f Var_b(mu) + floor)``; sigma^ is computed
    likewise. The result is ``X^ = sigma^ (X - mu) / sigma + mu^``. Gradients flow
    through every term.

    Parameters
    ----------
    maps : Tensor of shape (B, C, H, W)
    mean_factor, std_factor : Tensor of shape (C,), or float
        The factors f of the batch's variances of mu and of sigma.
    mean_noise, std_noise : Tensor of shape (B, C)
        The noise e for mu and for sigma.
    floor : float
        A variance that is added. With f = 0, as in FedFA-R, all noise has this
        variance.

    Returns
    -------
    maps : Tensor of shape (B, C, H, W)
    mean, std : Tensor of shape (C,)
        The batch's means of mu and of sigma before the noise, without a gradient.
    """
    return _Shaken.apply(maps, mean_factor, std_factor, mean_noise, std_noise, floor)


class _Shaken(torch.autograd.Function):
    """The function `shaken` with a gradient of our own.

    On small maps it is twice as fast as autograd.
    """

    @staticmethod
    def forward(ctx, maps, mean_factor, std_factor, mean_noise, std_noise, floor):
        centred, mean, std = decompose(maps)
        batch_mean, batch_std = mean.mean(dim=0), std.mean(dim=0)
        mean_slope, mean_spread = _spread(mean - batch_mean, mean_factor, floor)
        std_slope, std_spread = _spread(std - batch_std, std_factor, floor)
        scale = torch.addcmul(std, std_noise, std_spread) / std
        new = compose(centred, torch.addcmul(mean, mean_noise, mean_spread), scale)
        ctx.save_for_backward(
            centred, std, scale, mean_noise, mean_slope, std_noise, std_slope
        )
        ctx.mark_non_differentiable(batch_mean, batch_std)
        return new.view_as(maps), batch_mean, batch_std

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient, *_):
        centred, std, scale, mean_noise, mean_slope, std_noise, std_slope = (
            ctx.saved_tensors
        )
        flat = gradient.flatten(2)
        of_mean = flat.sum(dim=2)  # of mu^
        of_std = (flat * centred).sum(dim=2) / std  # of sigma^
        # mu also changes X - mu; sigma also divides; both change the noise.
        of_mu = of_mean * (1 - scale) + mean_slope * (of_mean * mean_noise).sum(dim=0)
        of_sigma = of_std * (1 - scale) + std_slope * (of_std * std_noise).sum(dim=0)
        pixels = flat.shape[2]
        into = compose(centred, of_mu / pixels, of_sigma / (std * pixels))
        into.addcmul_(flat, scale[..., None])
        return into.view_as(gradient), None, None, None, None, None


def _spread(apart: Tensor, factor: Tensor | float, floor: float):
    """The spread ``d = sqrt(factor Var_b + floor)`` [C], and its derivative [B, C].

    `apart` [B, C] are the values minus their mean. The derivative is with respect to
    the values, and comes first in the result.
    """
    spread = (factor * apart.square().mean(dim=0) + floor).sqrt()
    return apart * (factor / (len(apart) * spread)), spread


class RunningStatistics:
    """A layer's running means of mu and sigma over a round's batches (Eq. 5).

    The paper's means start at 0 and 1 in each round. Each batch that the layer acts on
    moves them by ``1 - momentum``. So after t batches, only the share ``1 -
    momentum^t`` comes from the client's features. `debiased` removes the effect of the
    start, as Adam does. If maps never change, the result is exact after any number of
    batches.

    Parameters
    ----------
    channels : int
        C.
    momentum : float
        At least 0, below 1.
    device : torch.device, optional

    Attributes
    ----------
    batches, rows : int
        The numbers of batches and rows that were added so far.
    largest_share : float
        The largest share of one row in the debiased means.
    """

    def __init__(
        self, channels: int, momentum: float, device: torch.device | None = None
    ):
        self.momentum = momentum
        self._mean = torch.zeros(channels, dtype=torch.float64, device=device)
        self._std = torch.zeros_like(self._mean)
        self.batches = self.rows = 0
        self.largest_share = 0.0

    def add(self, mean: Tensor, std: Tensor, rows: int) -> None:
        """Add the means [C] of mu and sigma over a batch of `rows`."""
        self.batches += 1
        self.rows += rows
        # The share of the new batch in the debiased mean.
        share = (1 - self.momentum) / (1 - self.momentum**self.batches)
        self._mean.lerp_(mean.double(), share)
        self._std.lerp_(std.double(), share)
        self.largest_share = max(self.largest_share * (1 - share), share / rows)

    @property
    def debiased(self) -> tuple[Tensor, Tensor]:
        """The means of mu and sigma without the effect of the start: float32 [C] each.

        They are zero before the first batch.
        """
        return self._mean.float(), self._std.float()

    @property
    def biased(self) -> tuple[Tensor, Tensor]:
        """The means as in Eq. 5, which start at 0 for mu and at 1 for sigma."""
        start = self.momentum**self.batches
        return (
            ((1 - start) * self._mean).float(),
            ((1 - start) * self._std + start).float(),
        )


def client_variances(statistics: Sequence[Tensor]) -> Tensor:
    """The variance over clients in each channel (Eq. 6), from S vectors [C].

    Returns
    -------
    Tensor of shape (C,)
    """
    return torch.stack(list(statistics)).double().var(dim=0, unbiased=False)


def modulated(variances: Tensor) -> Tensor:
    """The factor of each channel's variance (Eq. 7): shape (C,).

    It is ``gamma_j = C q_j / sum(q)`` with ``q = s / (1 + s)``.

    `variances` [C] are s. q is the weight by a Student's t distribution with one degree
    of freedom. gamma is 1 if no channel varies.
    """
    share = variances / (1 + variances)
    if not share.any():
        return torch.ones_like(share)
    return len(share) * share / share.sum()


def stage_problem(model: Model, wanted: Sequence[float], field: str) -> str:
    """The reason why a method that acts on stages cannot use `model`; "" if it can.

    A head on embeddings has no stages. A network may have fewer stages than the setting
    `field` asks for.
    """
    count = len(model.stage_widths)
    if not count:
        return (
            "acts on the stages of a network, but this model has none; set a network "
            "with stages"
        )
    if wanted and max(wanted) > count:
        return f"{field} {list(wanted)} names more than the network's {count} stages"
    return ""


class BatchDraws:
    """Makes random draws for each stage of a batch, and repeats them for the same
    batch.

    FedSAM runs the model twice on a batch, and both gradients must be of the same loss.
    `new_batch` is a `LocalHooks.transform` that begins a new batch. If it is never
    called, every run of a stage draws anew.

    Parameters
    ----------
    draw : callable (stage, maps) -> object
        Makes the draws for a stage with maps of shape [B, C, H, W].
    """

    def __init__(self, draw: Callable[[int, Tensor], object]):
        self._draw = draw
        self._drawn: dict[int, object] | None = None

    def new_batch(self, features: Tensor, labels: Tensor) -> Tensor:
        self._drawn = {}
        return features

    def of(self, stage: int, maps: Tensor) -> tuple:
        """The draws for a stage, and whether this call has made them."""
        if self._drawn is not None and stage in self._drawn:
            return self._drawn[stage], False
        drawn = self._draw(stage, maps)
        if self._drawn is not None:
            self._drawn[stage] = drawn
        return drawn, True


#: Added to every bin before a divergence, because bins may be 0 at a small temperature.
SMOOTHING = 1e-3

# Rows that are binned at once. Bins take `bins` times the memory of features.
_ROWS = 1024


def soft_histogram(values: Tensor, bins: int, temperature: float) -> Tensor:
    """The histogram with soft bins of each column (Eqs. 11-13).

    Every column is scaled to 0..1 by its smallest and largest value, without a gradient
    through these. A constant column becomes 0. Then ``Phi(z) = softmax((w z + b) / t)``
    with ``w = 1..L`` and ``b = -[0, cumsum(rho)]``. rho are the L - 1 cut points,
    spread evenly over ``0..1``. The histogram is the mean of Phi. The first and the
    last bin lie outside 0..1 and get only the smallest and the largest values.

    Parameters
    ----------
    values : Tensor of shape (n, C)
        The values, with n > 0.
    bins : int
        The number of bins L, at least 3.
    temperature : float
        The temperature t.

    Returns
    -------
    Tensor of shape (C, L)
        The histograms. Each row sums to 1.
    """
    low, high = torch.aminmax(values.detach(), dim=0)
    width = high - low
    # A constant column becomes 0, and has no gradient.
    scale = torch.where(width > 0, width.reciprocal(), torch.zeros_like(width))
    constants = _bins(bins, temperature).to(values.dtype)
    slope, offset = sent(constants, values.device)[..., None, None]
    # Bins come first: a softmax over the last dimension, of 8, is ten times slower.
    parts = [
        torch.addcmul(offset, part, slope).softmax(dim=0).sum(dim=1)
        for part in ((values - low) * scale).split(_ROWS)
    ]
    return sum(parts[1:], parts[0]).t() / len(values)


@lru_cache(maxsize=8)
def _bins(bins: int, temperature: float) -> Tensor:
    """The constants ``w / t`` and ``b / t`` of soft bins: shape (2, L), float64."""
    slope = torch.arange(1, bins + 1, dtype=torch.float64)
    cuts = (slope[:-1] - 1) / (bins - 2)
    offset = -torch.cat([cuts.new_zeros(1), cuts.cumsum(0)])
    return torch.stack([slope, offset]) / temperature


def symmetric_divergence(one: Tensor, other: Tensor) -> Tensor:
    """The symmetric divergence of two histograms for each row (Eq. 14): shape (C,).

    It is ``1/2 (KL(p || q) + KL(q || p))``, in nats. p and q are the histograms `one`
    and `other` [C, L], each smoothed to ``(pi + s) / (1 + s L)``, s = `SMOOTHING`.
    """
    total = 1 + SMOOTHING * one.shape[-1]
    p, q = ((pi + SMOOTHING) / total for pi in (one, other))
    return 0.5 * ((p - q) * (p / q).log()).sum(dim=-1)
