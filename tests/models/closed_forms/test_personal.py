"""Clients' own heads: leave-one-out equals refitting; kappa nests the head of all."""

import math

import numpy as np
import pytest
import torch
from solving import stats

from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.models.closed_forms.components import Components, Rows
from federatedscope_ggeur.models.closed_forms.personal import (
    KAPPAS,
    OwnMeans,
    PersonalHeads,
)

CLASSES, DIM = 3, 4


def made(seed=0, n=24):
    rng = np.random.default_rng(seed)
    y, k = rng.integers(CLASSES, size=n), rng.integers(1, 3, size=n)
    x = 2 * rng.normal(size=(CLASSES, DIM))[y] + rng.normal(size=(n, DIM)) + k[:, None]
    x *= np.geomspace(1, 20, DIM)
    y[:2], k[:2] = [0, 0], [1, 2]  # class 0 is on both
    return x, y, k


def fitted(x, y, k, kappa, g, scale, client=1, prior=False):
    """By explicit inverses: weights [C, D] and biases [C] of classes that are there."""
    x = x / scale
    m, n, classes = x.mean(0), len(y), sorted(set(y))
    within = sum((x[y == c] - x[y == c].mean(0)).T @ (x[y == c] - x[y == c].mean(0))
                 for c in classes)  # fmt: skip
    cov = within / (n - len(classes))
    cov = (1 - g) * cov + g * np.trace(cov) / DIM * np.eye(DIM)
    found = {}
    for c in classes:
        mu, mine = x[y == c].mean(0), (y == c) & (k == client)
        mean = mu
        if mine.any() and math.isfinite(kappa):
            mean = (mine.sum() * x[mine].mean(0) + kappa * mu) / (mine.sum() + kappa)
        share = (y == c).mean()
        if prior:
            share = (mine.sum() + share) / ((k == client).sum() + 1)
        w = np.linalg.solve(cov, mean - m)
        found[c] = (w / scale, np.log(share) - (mean - m) @ w / 2 - w @ m)
    return found


def logits(found, x):
    scores = np.array([found[c][0] @ x + found[c][1] for c in sorted(found)])
    return scores - scores.mean()


def parts_of(x, y):
    return Components.of_classes(stats(x, y, CLASSES))


def own_of(x, y, k):
    mine = torch.from_numpy(k == 1)
    return OwnMeans.of(torch.from_numpy(x)[mine], torch.from_numpy(y)[mine], CLASSES)


@pytest.mark.parametrize("standardize", [False, True])
def test_left_out_scores_are_those_of_refitting(standardize):
    x, y, k = made()
    form = CLOSED_FORMS["lda"](shrinkage=0.3, standardize=standardize)
    scale = x.std(0) if standardize else np.ones(DIM)
    score = PersonalHeads(form, parts_of(x, y)).left_out(own_of(x, y, k))
    mine = np.flatnonzero(k == 1)
    rows = Rows(
        torch.from_numpy(x[mine] / scale),
        torch.from_numpy(y[mine]),
        1,
        0,
        torch.ones(len(mine), dtype=torch.bool),
    )
    for kappa, found in zip(KAPPAS, score(rows)):
        for i, scores in zip(mine, found.numpy()):
            rest = np.arange(len(y)) != i
            wanted = logits(fitted(x[rest], y[rest], k[rest], kappa, 0.3, scale), x[i])
            np.testing.assert_allclose(
                scores - scores.mean(), wanted, rtol=1e-8, atol=1e-8
            )


@pytest.mark.parametrize("prior", [False, True])
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("kappa", [math.inf, 30.0, 0.0])
def test_the_head_is_lda_with_means_in_between(kappa, standardize, prior):
    x, y, k = made()
    form = CLOSED_FORMS["lda"](shrinkage=0.3, standardize=standardize)
    heads = PersonalHeads(form, parts_of(x, y))
    head = heads.head(own_of(x, y, k), kappa, 2.0, prior)
    scale = x.std(0) if standardize else np.ones(DIM)
    found = fitted(x, y, k, kappa, 0.3, scale, prior=prior)
    for row in x:
        scores = head(torch.from_numpy(row).float()).detach().numpy()
        np.testing.assert_allclose(
            2 * (scores - scores.mean()), logits(found, row), rtol=1e-4, atol=1e-4
        )


def test_withheld_classes_have_the_merged_mean():
    x, y, k = made()
    own = own_of(x, y, k)
    withheld = OwnMeans(own.counts * torch.tensor([1, 0, 1]), own.means)
    merged = torch.from_numpy(np.stack([x[y == c].mean(0) for c in range(CLASSES)]))
    drawn = withheld.drawn_to(merged, torch.arange(CLASSES), 1.0)
    assert torch.equal(drawn[1], merged[1])
    assert not torch.equal(drawn[0], merged[0])
