"""Text features as a guess of class means, which a noisy release corrects."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from federatedscope_ggeur.extras.differential_privacy.noise_aware import (
    believed,
    bridge,
    likely_counts,
)
from federatedscope_ggeur.extras.differential_privacy.noisy_release import (
    CLIP,
    NoisyStatistics,
)
from federatedscope_ggeur.extras.text.classes import ClassTexts

C, D = 5, 4


def release():
    counts = torch.tensor([30.0, 12.0, -2.0, 50.0, 9.0], dtype=torch.float64)
    rng = np.random.default_rng(1)
    sums = torch.tensor(rng.normal(size=(C, D))) * 4
    noise = {"counts": 3.0, "sums": 0.8, "square": 0.4}
    centre = torch.tensor(rng.normal(size=D)) * 0.2
    return NoisyStatistics(counts, centre, sums, None, noise)


def test_text_is_a_guess_that_counts_like_rows():
    held, kappa = release(), 3.0
    rng = np.random.default_rng(5)
    features = held.sums / 5 + torch.tensor(rng.normal(size=(C, D)))
    text = ClassTexts(features, 1.0, prior=kappa)
    counts = likely_counts(held).tolist()
    total = float(held.counts.clamp(min=1).sum())
    sums = held.sums.numpy()
    g = sums.sum(axis=0) / total
    d = text.features.numpy() - text.features.numpy().mean(axis=0)
    above = sum((sums[c] - counts[c] * g) @ d[c] for c in range(C))
    squares = sum(counts[c] * d[c] @ d[c] for c in range(C))
    exact = replace(held, noise={**held.noise, "sums": 0.0})
    assert bridge(exact, text.offsets) == pytest.approx(above / squares)
    assert bridge(exact, -text.offsets) == 0
    grid = np.linspace(0, 1, 100_001)
    noise = 0.8 * np.sqrt((d**2).sum()) / squares
    likely = np.exp(-(((grid - above / squares) / noise) ** 2) / 2)
    a = (grid * likely).sum() / likely.sum()
    assert bridge(held, text.offsets) == pytest.approx(a, rel=1e-4)
    w = 0.9 * CLIP**2 / D / 2
    b = 1 / (1 / w + kappa / w)  # the spread between classes, and kappa rows
    means, p = np.zeros((C, D)), w
    for c in range(C):
        v = (0.8 / counts[c]) ** 2 + w / counts[c]
        h = b / (b + v)
        means[c] = a * d[c] + h * (sums[c] / counts[c] - g - a * d[c])
        p += h * v / C
    weight, _ = believed(held, text.guess(partial(bridge, held))[0], kappa).head()
    np.testing.assert_allclose(weight, means / p, rtol=1e-4)
    half = torch.tensor(rng.normal(size=(40, D))) * 0.4
    squared = replace(held, square=half.T @ half)
    assert (
        believed(squared, text.guess(partial(bridge, squared))[0], kappa)
        .head()[0]
        .isfinite()
        .all()
    )
