"""Strangeness: the relative Mahalanobis distance, from the statistics of LDA."""

import numpy as np
import pytest
import torch
from solving import stats

from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.models.own import Strangeness

CLASSES, DIM = 4, 6


def rows(n=80, seed=0, far=0.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=n)
    means = 4 * np.random.default_rng(5).normal(size=(CLASSES, DIM))
    x = means[labels] + rng.normal(size=(n, DIM)) * np.geomspace(1, 3, DIM)
    return x * np.geomspace(1, 100, DIM) + far, labels


def by_hand(x, y, points, g):
    """By explicit inverses."""
    m, classes = x.mean(0), sorted(set(y))
    within = sum((x[y == c] - x[y == c].mean(0)).T @ (x[y == c] - x[y == c].mean(0))
                 for c in classes)  # fmt: skip
    a, b = within / (len(y) - len(classes)), (x - m).T @ (x - m) / (len(y) - 1)
    a, b = ((1 - g) * s + g * np.trace(s) / DIM * np.eye(DIM) for s in (a, b))
    a, b = np.linalg.inv(a), np.linalg.inv(b)
    nearest = [
        min((p - x[y == c].mean(0)) @ a @ (p - x[y == c].mean(0)) for c in classes)
        for p in points
    ]
    return np.array(nearest) - np.array([(p - m) @ b @ (p - m) for p in points])


@pytest.mark.parametrize("far", [0.0, 50.0])
@pytest.mark.parametrize("g", [0.01, 0.5])
@pytest.mark.parametrize("standardize", [False, True])
def test_it_is_that_of_explicit_inverses(standardize, g, far):
    x, y = rows(far=far)
    points = np.float32(rows(20, seed=1, far=far)[0]).astype(float)
    form = CLOSED_FORMS["lda"](shrinkage=g, standardize=standardize)
    found = form.strangeness(stats(x, y, CLASSES)).scores(torch.from_numpy(points))
    by = x.std(0) if standardize else np.ones(DIM)
    wanted = by_hand(x / by, y, points / by, g)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6, atol=1e-6)


def test_its_tensors_make_it_again():
    x, y = rows()
    found = CLOSED_FORMS["lda"](shrinkage=0.1).strangeness(stats(x, y, CLASSES))
    again = Strangeness.of_tensors(found.tensors())
    points = torch.from_numpy(rows(9, seed=3)[0])
    assert torch.equal(found.scores(points), again.scores(points))


@pytest.mark.parametrize("kind", ["ridge", "ncm", "mixture"])
def test_other_forms_have_none(kind):
    form = CLOSED_FORMS[kind]().untuned()
    assert form.strangeness(stats(*rows(), CLASSES)) is None
