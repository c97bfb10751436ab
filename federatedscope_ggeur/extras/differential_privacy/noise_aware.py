"""Heads made from a noisy release, which take the size of the noise into account.

A plain head of the same numbers is nearly useless: a class whose noisy count is near 1
wins every row. So counts and class means are pulled towards the average of all classes,
as far as noise explains their spread. Everything here is post-processing of the
release.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from federatedscope_ggeur.models import ClosedForm, LinearHead
from federatedscope_ggeur.models.closed_forms.base import Report, Solved

from .noisy_release import CLIP, NoisyStatistics

F64 = torch.float64
#: The mean squared length of clipped rows, as a share of the largest possible one.
_FILLED = 0.9


@dataclass(frozen=True)
class Believed:
    """Estimates of the classes from a noisy release, along the axes `basis`.

    Attributes
    ----------
    centre : Tensor of shape (D,), float64
        The point that is subtracted from rows.
    basis : Tensor of shape (D, D), float64
        Each column is an axis.
    counts : Tensor of shape (C,), float64
    means, unsure : Tensor of shape (C, D), float64
        The estimated class means minus `centre`, and the variances of these estimates.
    within : Tensor of shape (D,), float64
        The variance of rows about the mean of their class, along each axis.
    priors : bool
        Whether the head prefers frequent classes.
    """

    centre: Tensor
    basis: Tensor
    counts: Tensor
    means: Tensor
    unsure: Tensor
    within: Tensor
    priors: bool

    def head(self) -> tuple[Tensor, Tensor]:
        """Weights [C, D] and biases [C] of a linear head for untransformed rows."""
        spread = self.within + self.unsure.mean(dim=0)
        weight = self.means / spread
        bias = -(self.means * weight).sum(dim=1) / 2
        if self.priors:
            bias = bias + (self.counts / self.counts.sum()).log()
        weight = weight @ self.basis.T
        return weight, bias - weight @ self.centre


def likely_counts(release: NoisyStatistics) -> Tensor:
    """The estimated number of rows of each class, at least 1: Tensor of shape (C,)."""
    noisy, noise = release.counts.clamp(min=1.0), release.noise["counts"] ** 2
    spread = max(float(noisy.var(unbiased=False)) - noise, 0.0)
    mean = float(noisy.sum()) / len(noisy)
    trusted = spread / (spread + noise)
    return (mean + trusted * (noisy - mean)).clamp(min=1.0)


def spherical(
    release: NoisyStatistics, guess: Tensor | None = None, kappa: float = 0.0
) -> Believed:
    """Estimate the classes from noisy counts and sums, without a second moment.

    Without public rows, rows are assumed to spread equally in all directions. With
    public rows, all rows are assumed to spread like the public ones, and the public
    class means are the first guess. Without public rows it is `guess`, see `believed`.
    """
    dim, public = release.dim, release.public
    size = _FILLED * CLIP**2 / dim
    basis, sizes = torch.eye(dim, dtype=F64), torch.full((dim,), size, dtype=F64)
    if public is not None:
        values, basis = torch.linalg.eigh(public.covariance)
        values = values.clamp(min=0)
        sizes = 0.5 * values + 0.5 * values.mean()
        guess = public.means - release.centre - overall(release)
    return _believed(release, basis, sizes, guess, kappa, priors=False)


def with_square(
    release: NoisyStatistics, guess: Tensor | None = None, kappa: float = 0.0
) -> Believed:
    """Estimate the classes from noisy counts, sums and second moment.

    The effect of noise on the spectrum of the second moment is removed. `guess` and
    `kappa` are as in `believed`.
    """
    assert release.square is not None
    dim, total = release.dim, _total(release)
    mean = overall(release)
    moment = release.square / total - torch.outer(mean, mean)
    values, basis = torch.linalg.eigh(moment)
    trace = moment.trace().clamp(min=1e-9)
    # The edge of the spectrum of noise alone, by Wigner's law.
    edge = release.noise["square"] * (2 * dim) ** 0.5 / total
    sizes = (values - edge).clamp(min=0)
    sizes = sizes * (trace / sizes.sum().clamp(min=1e-12)).clamp(max=1.0)
    sizes = sizes + (trace - sizes.sum()) / dim
    sizes = 0.9 * sizes + 0.1 * sizes.mean()
    return _believed(release, basis, sizes, guess, kappa, priors=True)


def believed(
    release: NoisyStatistics, guess: Tensor | None = None, kappa: float = 0.0
) -> Believed:
    """Estimate the classes from a release.

    `guess` [C, D] are guesses of the class means minus the mean of all rows; by default
    they are zeros. They count like `kappa` rows.
    """
    how = spherical if release.square is None else with_square
    return how(release, guess, kappa)


def _believed(
    release: NoisyStatistics,
    basis: Tensor,
    sizes: Tensor,
    guess: Tensor | None,
    kappa: float,
    priors: bool,
) -> Believed:
    """Class means along `basis`, between the noisy means and a `guess` [C, D].

    Half of the spread `sizes` [D] is within classes and half between class means. A
    guess that counts like `kappa` rows reduces the spread between class means.
    """
    counts, mean = likely_counts(release), overall(release)
    within = sizes / 2
    between = within / (1 + kappa)
    guess = torch.zeros_like(release.sums) if guess is None else guess @ basis
    measured = (release.sums / counts[:, None] - mean) @ basis
    noise = (release.noise["sums"] / counts[:, None]) ** 2 + within / counts[:, None]
    trusted = between / (between + noise)
    means, unsure = guess + trusted * (measured - guess), trusted * noise
    centre = release.centre + mean
    return Believed(centre, basis, counts, means, unsure, within, priors)


def _total(release: NoisyStatistics) -> Tensor:
    return release.counts.clamp(min=1.0).sum()


def overall(release: NoisyStatistics) -> Tensor:
    """The mean of all rows about the centre: shape (D,)."""
    return release.sums.sum(dim=0) / _total(release)


def bridge(release: NoisyStatistics, offsets: Tensor) -> float:
    """Estimate from noisy sums the factor a by which `offsets` [C, D] fit class means.

    Both are taken less their means over rows. The measured value is a plus Gaussian
    noise of a known size. The estimate is the posterior mean for a uniform prior of a
    in 0..1, or up to the measured value if that is larger. (Rows and offsets are of
    vectors of length 1.) Without noise the estimate is the measured value, or 0 if that
    is negative.
    """
    counts, lengths = likely_counts(release), offsets.square().sum(dim=1)
    squares = float(counts @ lengths)
    if not squares > 0:
        return 0.0
    off = release.sums - counts[:, None] * overall(release)
    measured = float((off * offsets).sum()) / squares
    noise = release.noise["sums"] * float(lengths.sum()) ** 0.5 / squares
    if not noise:
        return max(measured, 0.0)
    from scipy import stats

    ends = -measured / noise, (max(measured, 1.0) - measured) / noise
    return float(stats.truncnorm.mean(*ends, loc=measured, scale=noise))


def solved(release: NoisyStatistics, form: ClosedForm) -> Solved:
    """Compute a head of all classes, in place of that of `form`, from a release."""
    assert form.from_noise, f"{form.name} knows nothing of noise"
    known = form.known
    guessed: Report = {}
    if known is not None and known.prior:
        guess, guessed = known.guess(partial(bridge, release))
        belief = believed(release, guess, known.prior)
    else:
        belief = believed(release)
    weight, bias = belief.head()
    model = LinearHead(release.dim, release.num_classes)
    with torch.no_grad():
        model.classifier.weight.copy_(weight - weight.mean(dim=0))
        model.classifier.bias.copy_(bias - bias.mean())
    report: Report = {
        "rows": int(release.counts.sum().clamp(min=0)),
        "classes": release.num_classes,
        "left_out": 0,
        "noise_aware": "counts and sums"
        if release.square is None
        else "counts, sums and second moment",
    }
    if release.public is not None:
        report["prior"] = "public rows"
    return Solved(model.eval().requires_grad_(False), {**report, **guessed})
