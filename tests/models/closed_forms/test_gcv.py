"""Generalised cross-validation from merged statistics, against a plain oracle."""

import numpy as np
import pytest
from solving import stats

from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.models.closed_forms.base import Seen
from federatedscope_ggeur.models.closed_forms.shrinkage import (
    GCV_STRENGTHS,
    ridge_by_gcv,
)

CLASSES, DIM = 4, 9


def rows(n=60, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(CLASSES, size=n)
    means = np.random.default_rng(3).normal(size=(CLASSES, DIM))
    return scale * (means[y] + rng.normal(size=(n, DIM))) + 5, y


def by_hand(x, y, added):
    """N RSS / (N - tr H)^2 of regression on one-hot labels, with the hat matrix."""
    n, targets = len(y), np.eye(CLASSES)[y]
    z = x - x.mean(0)
    hat = 1 / n + z @ np.linalg.solve(z.T @ z + added * np.eye(DIM), z.T)
    residual = targets - hat @ targets
    return n * (residual**2).sum() / (n - np.trace(hat)) ** 2


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("n", [12, 60, 400])
def test_the_least_of_the_grid(n, scale):
    x, y = rows(n, scale=scale)
    seen = Seen.of(stats(x, y, CLASSES))
    found = ridge_by_gcv(seen.within, seen.counts, seen.offsets)
    z = x - x.mean(0)
    size = (z**2).sum() / DIM
    scores = [by_hand(x, y, a * size) for a in GCV_STRENGTHS]
    assert by_hand(x, y, found) == pytest.approx(min(scores), rel=1e-9)


def test_without_scatter_there_is_nothing_to_add():
    x = np.ones((5, DIM))
    seen = Seen.of(stats(x, np.zeros(5, int), CLASSES))
    assert ridge_by_gcv(seen.within, seen.counts, seen.offsets) == 0


def test_where_no_rows_are_left_out_it_chooses_for_lda_and_ridge():
    held = stats(*rows(), CLASSES)
    seen = Seen.of(held)
    added = ridge_by_gcv(seen.within, seen.counts, seen.offsets)
    report = CLOSED_FORMS["lda"]().solve(held).report
    assert report["shrinkage_rule"] == "generalised cross-validation"
    trace = float(seen.within.trace()) / DIM
    assert report["shrinkage"] == pytest.approx(added / (added + trace))
    total = float((seen.within + (seen.offsets.T * seen.counts) @ seen.offsets).trace())
    strength = CLOSED_FORMS["ridge"]().solve(held).report["strength"]
    assert strength == pytest.approx(added * DIM / total)


def test_ledoit_and_wolf_and_what_is_set_stay():
    held = stats(*rows(), CLASSES)
    report = CLOSED_FORMS["lda"](rule="ledoit_wolf").solve(held).report
    assert report["shrinkage_rule"] == "ledoit-wolf (gaussian)"
    assert CLOSED_FORMS["ridge"](strength=0.7).solve(held).report["strength"] == 0.7
