"""Dimensions in different units: the same head whatever the units are."""

import numpy as np
import pytest
import torch
from solving import stats

from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.models.closed_forms.components import Components

CLASSES = 5
KINDS = ("lda", "mixture", "ridge")


def make(seed=0, n=300, dim=12):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % CLASSES
    rows = 0.8 * rng.normal(size=(CLASSES, dim))[labels] + rng.normal(size=(n, dim))
    units = np.geomspace(1e-3, 1e3, dim)
    return rows, labels, units


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_head_of_rows_divided_beforehand(kind):
    rows, labels, units = make()
    x = rows * units
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


def test_a_dimension_that_is_zero_in_all_rows_stays():
    rows, labels, units = make(n=60, dim=40)
    rows *= units
    rows[:, ::4] = 0  # a thin factor leaves rounding in them
    found = Components.of_classes(stats(rows, labels, CLASSES)).deviations()
    assert (found[::4] == 1).all()
    model = CLOSED_FORMS["lda"](standardize=True).untuned()
    head = model.solve(stats(rows, labels, CLASSES)).model
    moved = torch.from_numpy(rows).float()
    moved[:, ::4] = 1
    torch.testing.assert_close(head(moved), head(torch.from_numpy(rows).float()))


def test_a_constant_dimension_stays():
    rows, labels, _ = make()
    rows[:, 3] = 7.5
    parts = Components.of_classes(stats(rows, labels, CLASSES))
    assert parts.deviations()[3] == 1
    np.testing.assert_allclose(
        np.delete(parts.deviations().numpy(), 3), np.delete(rows.std(axis=0), 3)
    )


def test_deviations_are_the_same_at_every_grain():
    rows, labels, units = make()
    parts = Components.joined(
        Components.of_client(
            stats(rows[k::3] * units, labels[k::3], CLASSES),
            k + 1,
            str(k % 2),
            ("0", "1"),
        )
        for k in range(3)
    )
    for grain in ("domain", "class"):
        torch.testing.assert_close(parts.merged(grain).deviations(), parts.deviations())
    np.testing.assert_allclose(parts.deviations(), (rows * units).std(axis=0))
