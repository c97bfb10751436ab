"""Heads of a noisy release, against their formulas written out plainly."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from federatedscope_ggeur.extras.differential_privacy import noise_aware, noisy_release
from federatedscope_ggeur.extras.text.classes import ClassTexts

C, D = 4, 6
NOISE = {"counts": 3.0, "sums": 0.8, "square": 0.4}


def release(seed, square=False, more_counts=()):
    rng = np.random.default_rng(seed)
    counts = torch.tensor([30.0, 12.0, -2.0, 50.0, *more_counts], dtype=torch.float64)
    centre = torch.tensor(rng.normal(size=D)) * 0.2
    sums = torch.tensor(rng.normal(size=(len(counts), D))) * 4
    moment = None
    if square:
        half = torch.tensor(rng.normal(size=(40, D))) * 0.4
        moment = half.T @ half
    return noisy_release.NoisyStatistics(counts, centre, sums, moment, NOISE)


def plain_counts(noisy):
    noisy = [max(1.0, float(n)) for n in noisy]
    total, s2 = sum(noisy), np.var(noisy) - 9.0
    w = max(s2, 0) / (max(s2, 0) + 9.0)
    return [max(1.0, total / C + w * (n - total / C)) for n in noisy], total


def pulled(apart, counts, between, within):
    """Means, pulled to 0 by their noise and spread, and the common spread of rows."""
    n = np.array(counts)[:, None]
    noise = (0.8 / n) ** 2 + within / n
    h = between / (between + noise)
    return h * apart, within + (h * noise).mean(axis=0)


def test_counts_and_sums_alone():
    held = release(1)
    counts, total = plain_counts(held.counts)
    g = held.sums.numpy().sum(axis=0) / total
    b = w = 0.9 * noisy_release.CLIP**2 / D / 2
    apart = held.sums.numpy() / np.array(counts)[:, None] - g
    means, p = pulled(apart, counts, b, w)
    weight, bias = noise_aware.spherical(held).head()
    np.testing.assert_allclose(weight, means / p)
    at = held.centre.numpy() + g
    np.testing.assert_allclose(bias, -(means**2).sum(1) / 2 / p - weight.numpy() @ at)


def test_with_the_second_moment():
    held = release(2, square=True)
    counts, total = plain_counts(held.counts)
    g = held.sums.numpy().sum(axis=0) / total
    moment = held.square.numpy() / total - np.outer(g, g)
    values, basis = np.linalg.eigh(moment)
    sizes = np.maximum(values - 0.4 * np.sqrt(2 * D) / total, 0)
    trace = np.trace(moment)
    if sizes.sum() > trace:
        sizes *= trace / sizes.sum()
    sizes += (trace - sizes.sum()) / D
    sizes = 0.9 * sizes + 0.1 * sizes.mean()
    b = v = sizes / 2
    apart = (held.sums.numpy() / np.array(counts)[:, None] - g) @ basis
    means, p = pulled(apart, counts, b, v)
    weight, bias = noise_aware.with_square(held).head()
    np.testing.assert_allclose(weight, (means / p) @ basis.T)
    priors = np.log(np.array(counts) / sum(counts))
    at = weight.numpy() @ (held.centre.numpy() + g)
    np.testing.assert_allclose(bias, -(means**2 / p).sum(1) / 2 + priors - at)


def test_without_any_rows_public_ones_decide():
    held = release(3)
    centre, none = torch.zeros(D).double(), torch.zeros(C, D).double()
    nothing = noisy_release.NoisyStatistics(
        torch.ones(C).double(), centre, none, None, {**NOISE, "sums": 1e6}
    )
    rows = torch.eye(D)[:C] + 0.01
    public = noisy_release.PublicRows.of(rows, torch.arange(C), C)
    weight, bias = noise_aware.spherical(replace(nothing, public=public)).head()
    assert (rows.double() @ weight.T + bias).argmax(dim=1).tolist() == [0, 1, 2, 3]
    torch.testing.assert_close(public.means, rows.double())
    weight, _ = noise_aware.spherical(replace(held, public=public)).head()
    assert weight.isfinite().all()


# Text features as a guess of class means, which a noisy release corrects.


TEXT_CLASSES = 5


def test_text_is_a_guess_that_counts_like_rows():
    held, kappa = release(1, more_counts=[9.0]), 3.0
    rng = np.random.default_rng(5)
    features = held.sums / 5 + torch.tensor(rng.normal(size=(TEXT_CLASSES, D)))
    text = ClassTexts(features, 1.0, prior=kappa)
    counts = noise_aware.likely_counts(held).tolist()
    total = float(held.counts.clamp(min=1).sum())
    sums = held.sums.numpy()
    g = sums.sum(axis=0) / total
    d = text.features.numpy() - text.features.numpy().mean(axis=0)
    above = sum((sums[c] - counts[c] * g) @ d[c] for c in range(TEXT_CLASSES))
    squares = sum(counts[c] * d[c] @ d[c] for c in range(TEXT_CLASSES))
    exact = replace(held, noise={**held.noise, "sums": 0.0})
    assert noise_aware.bridge(exact, text.offsets) == pytest.approx(above / squares)
    assert noise_aware.bridge(exact, -text.offsets) == 0
    grid = np.linspace(0, 1, 100_001)
    noise = 0.8 * np.sqrt((d**2).sum()) / squares
    likely = np.exp(-(((grid - above / squares) / noise) ** 2) / 2)
    a = (grid * likely).sum() / likely.sum()
    assert noise_aware.bridge(held, text.offsets) == pytest.approx(a, rel=1e-4)
    w = 0.9 * noisy_release.CLIP**2 / D / 2
    b = 1 / (1 / w + kappa / w)  # the spread between classes, and kappa rows
    apart = sums / np.array(counts)[:, None] - g - a * d
    means, p = pulled(apart, counts, b, w)
    weight, _ = noise_aware.believed(
        held, text.guess(partial(noise_aware.bridge, held))[0], kappa
    ).head()
    np.testing.assert_allclose(weight, (a * d + means) / p, rtol=1e-4)
    half = torch.tensor(rng.normal(size=(40, D))) * 0.4
    squared = replace(held, square=half.T @ half)
    guess, *_ = text.guess(partial(noise_aware.bridge, squared))
    assert noise_aware.believed(squared, guess, kappa).head()[0].isfinite().all()
