"""Ridge regression: the plain oracle, scikit-learn's, what is refused."""

import closed_form_oracle as oracle
import numpy as np
import pytest
import torch
from closed_form_federations import components_of
from sklearn.linear_model import Ridge
from solving import (
    ENOUGH,
    FEW,
    OTHERS,
    OTHERS_LABELS,
    OTHERS_ROWS,
    check_linear,
    refuse,
    stats,
    weights_of,
)

from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.models.closed_forms.base import Seen
from federatedscope_ggeur.models.closed_forms.components import Components
from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant
from federatedscope_ggeur.models.closed_forms.ridge import RidgeRegression
from federatedscope_ggeur.models.closed_forms.shrinkage import (
    GCV_STRENGTHS,
    ridge_by_gcv,
)


@pytest.mark.parametrize("strength", [0.01, 1.0, 10.0])
def test_equals_the_oracle(data, strength):
    form = RidgeRegression(strength=strength)
    check_linear(data, form, oracle.relative_ridge(*data, strength))
    assert form.solve(ENOUGH).report["strength"] == strength


def test_strength_equals_scikit_learns():
    size = OTHERS_ROWS.var(axis=0).sum() * len(OTHERS_ROWS) / OTHERS_ROWS.shape[1]
    other = Ridge(alpha=0.5 * size, solver="cholesky")
    other.fit(OTHERS_ROWS, np.eye(4)[OTHERS_LABELS])
    found = weights_of(RidgeRegression(strength=0.5).solve(OTHERS).model)
    oracle.assert_close(found[0], oracle.centred(other.coef_))
    oracle.assert_close(found[1], oracle.centred(other.intercept_))


def test_without_any_scatter_the_largest_class_wins():
    solved = RidgeRegression().solve(stats(np.ones((3, 2)), np.array([0, 1, 1]), 3))
    weight, bias = weights_of(solved.model)
    assert not weight.any()
    assert bias.argmax() == 1


def test_what_stands_for_an_open_strength_adds_what_ldas_share_does():
    share = LinearDiscriminant().untuned().shrinkage
    assert RidgeRegression().untuned().strength == pytest.approx(share / (1 - share))


def test_next_to_nothing_is_refused():
    refuse(RidgeRegression(strength=1e-30), FEW, r"raise ggeur\.ridge\.strength")


# Generalised cross-validation from merged statistics, against a plain oracle.


CLASSES, DIM = 4, 9


def rows(n=60, scale=1.0):
    rng = np.random.default_rng(0)
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
    found = ridge_by_gcv(seen.within, seen.counts, seen.offsets, seen.rows)
    z = x - x.mean(0)
    size = (z**2).sum() / DIM
    scores = [by_hand(x, y, a * size) for a in GCV_STRENGTHS]
    assert by_hand(x, y, found) == pytest.approx(min(scores), rel=1e-9)


def test_rounding_in_directions_without_rows_changes_nothing():
    x, y = rows(DIM)
    seen = Seen.of(stats(x, y, CLASSES))
    known = seen.counts, seen.offsets, seen.rows
    noise = 1e-12 * float(seen.within.trace()) * torch.eye(DIM).double()
    found = ridge_by_gcv(seen.within + noise, *known)
    assert found == pytest.approx(ridge_by_gcv(seen.within, *known), rel=1e-6)


def test_without_scatter_there_is_nothing_to_add():
    x = np.ones((5, DIM))
    seen = Seen.of(stats(x, np.zeros(5, int), CLASSES))
    assert ridge_by_gcv(seen.within, seen.counts, seen.offsets, seen.rows) == 0


def test_where_no_rows_are_left_out_it_chooses_for_lda_and_ridge():
    held = stats(*rows(), CLASSES)
    seen = Seen.of(held)
    added = ridge_by_gcv(seen.within, seen.counts, seen.offsets, seen.rows)
    report = CLOSED_FORMS["lda"]().solve(held).report
    assert report["shrinkage_rule"] == "generalised cross-validation"
    trace = float(seen.within.trace()) / DIM
    assert report["shrinkage"] == pytest.approx(added / (added + trace))
    total = float((seen.within + (seen.offsets.T * seen.counts) @ seen.offsets).trace())
    strength = CLOSED_FORMS["ridge"]().solve(held).report["strength"]
    assert strength == pytest.approx(added * DIM / total)


# Dimensions in different units: the same head whatever the units are.


KINDS = ("lda", "mixture", "ridge")


def in_units(n=300, dim=12):
    rows, labels = oracle.make_data(np.random.default_rng(0), n, dim, CLASSES)
    return rows * np.geomspace(1e-3, 1e3, dim), labels


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_head_of_rows_divided_beforehand(kind):
    x, labels = in_units()
    by = x.std(axis=0)
    form = CLOSED_FORMS[kind](standardize=True).untuned()
    found = form.solve(stats(x, labels, CLASSES))
    plain = CLOSED_FORMS[kind]().untuned().solve(stats(x / by, labels, CLASSES))
    torch.testing.assert_close(
        found.model(torch.from_numpy(x).float()),
        plain.model(torch.from_numpy(x / by).float()),
        atol=1e-5,
        rtol=1e-4,
    )
    assert found.report["standardize"] is True
    assert "standardize" not in plain.report


@pytest.mark.parametrize("constant", [0, 7.5])
def test_a_constant_dimension_stays(constant):
    rows, labels = in_units(n=60, dim=40)
    rows[:, ::4] = constant  # a thin factor leaves rounding in them
    held = stats(rows, labels, CLASSES)
    wanted = np.where(np.arange(40) % 4, rows.std(axis=0), 1)
    np.testing.assert_allclose(Components.of_classes(held).deviations(), wanted)
    head = CLOSED_FORMS["lda"](standardize=True).untuned().solve(held).model
    points = torch.from_numpy(rows).float()
    moved = points.clone()
    moved[:, ::4] += 1
    torch.testing.assert_close(head(moved), head(points))


def test_deviations_are_the_same_at_every_grain():
    rows, labels = in_units()
    clients = 1 + np.arange(len(rows)) % 3
    parts = components_of(rows, labels, clients, CLASSES)
    for grain in ("domain", "class"):
        torch.testing.assert_close(parts.merged(grain).deviations(), parts.deviations())
    np.testing.assert_allclose(parts.deviations(), rows.std(axis=0))
