"""Temperatures: chosen by log-loss, and folded into heads without changing a class."""

import math

import numpy as np
import pytest
import torch
from closed_form_federations import scored
from hypothesis import given
from hypothesis import strategies as st
from solving import stats

from federatedscope_ggeur.models import CLOSED_FORMS, Model
from federatedscope_ggeur.models.closed_forms import (
    best_temperature,
    in_units,
    left_out_losses,
    spread_of_scores,
    temperatures,
)
from federatedscope_ggeur.models.closed_forms.components import Components
from federatedscope_ggeur.models.closed_forms.left_out import log_losses

CLASSES, DIM = 5, 4


def rows(n=60, seed=0, classes=CLASSES):
    generator = np.random.default_rng(seed)
    labels = generator.integers(classes, size=n)
    means = 2 * np.random.default_rng(9).normal(size=(CLASSES, DIM))
    return means[labels] + generator.normal(size=(n, DIM)), labels


@given(st.just(0.0) | st.floats(1e-30, 1e30))
def test_half_octaves_around_the_spread_and_one(spread):
    by = temperatures(spread)
    assert len(by) == 25
    assert 1.0 in by
    assert list(by) == sorted(by)
    if 0.1 < spread < 100:
        assert by[0] / spread == pytest.approx(2**-8, rel=0.2)
        assert by[-1] / spread == pytest.approx(2**4, rel=0.2)


def smoothed_loss(p, classes):
    return -math.log(0.999 * float(p) + 0.001 / classes)


def test_a_few_rows_that_a_head_is_sure_of_and_wrong_about_do_not_rule():
    """One in a hundred, of a head that is right about the others."""
    scores = torch.zeros(1000, 4, dtype=torch.float64)
    scores[:, 0] = 20.0
    labels = torch.zeros(1000, dtype=torch.int64)
    labels[:10] = 1
    by = temperatures(8.0)
    losses, _ = log_losses(scores, labels, by)
    t, _ = best_temperature(losses.mean(dim=1).tolist(), by)
    sure = float(Model.probabilities(scores / t)[0, 0])
    assert abs(sure - 0.99) < 0.01


@pytest.mark.parametrize("kind", ["lda", "ridge", "ncm", "mixture"])
def test_log_losses_are_those_of_heads_fitted_without_the_row(kind):
    x, y = rows(40)
    settings_of = {"ridge": {"strength": 0.3}, "ncm": {}}
    form = CLOSED_FORMS[kind](**settings_of.get(kind, {"shrinkage": 0.3}))
    held = Components.of_classes(stats(x, y, CLASSES))
    by = (0.25, 1.0, 3.0)
    found, known, _ = left_out_losses(form.leave_out(held), scored(x, y), by)
    wanted = np.zeros(len(by))
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        head = form.solve(stats(x[rest], y[rest], CLASSES)).model.double()
        logits = head(torch.tensor(x[i : i + 1]))[0]
        wanted += [smoothed_loss((logits / t).softmax(0)[y[i]], CLASSES) for t in by]
    assert known == len(y)
    np.testing.assert_allclose(found[0].numpy(), wanted, rtol=1e-5)


def test_rows_of_a_class_without_a_score_are_left_out_and_counted():
    x, y = rows(30, classes=3)
    held = Components.of_classes(stats(x, y, CLASSES))
    score = CLOSED_FORMS["lda"](shrinkage=0.3).leave_out(held)
    more = np.concatenate([y, [4, 4]])
    found, known, weight = left_out_losses(
        score, scored(np.concatenate([x, x[:2]]), more), (1.0,)
    )
    assert (known, weight) == (30, 30.0)
    assert torch.equal(found, left_out_losses(score, scored(x, y), (1.0,))[0])


def test_rounded_to_64ths_of_a_nat():
    losses = torch.tensor([0.0, 1.0, 2.507, 1e300]).double()
    assert in_units(losses).tolist() == [0, 64, 160, 2**50]


def mean_loss(logits, labels, t):
    return float(torch.nn.functional.cross_entropy(logits / t, labels))


@given(st.integers(0, 2**32), st.floats(0.02, 50.0))
def test_the_best_is_never_worse_than_one_and_near_the_true_minimum(seed, size):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (200,), generator=generator)
    logits = torch.randn(200, 4, generator=generator, dtype=torch.float64)
    logits[torch.arange(200), labels] += 1
    logits *= size
    by = temperatures(size)
    losses = [mean_loss(logits, labels, t) for t in by]
    found, least = best_temperature(losses, by)
    at_best = mean_loss(logits, labels, found)
    assert at_best <= mean_loss(logits, labels, 1.0)
    tried = torch.logspace(math.log10(by[0]), math.log10(by[-1]), 400).tolist()
    assert at_best <= min(mean_loss(logits, labels, t) for t in tried) + 0.01
    assert least == pytest.approx(at_best, abs=0.01)  # the loss is that of this T


@pytest.mark.parametrize(
    ("losses", "by", "best"),
    [
        # The end of the grid is taken if it is lowest.
        ([1.0, 2.0, 3.0], (0.5, 0.7, 1.0), 0.5),
        ([3.0, 2.0, 1.0], (1.0, 1.4, 2.0), 2.0),
        # Of equal losses the temperature nearest to 1 counts.
        ([0.0, 0.0, 0.0, 0.0, 1.0], (0.25, 0.5, 1.0, 2.0, 4.0), 1.0),
        ([0.0, 0.0, 1.0], (2.0, 4.0, 8.0), 2.0),
    ],
)
def test_the_best_at_the_ends_and_of_equals(losses, by, best):
    assert best_temperature(losses, by) == (best, min(losses))


@pytest.mark.parametrize("temperature", [0.01, 0.5, 40.0])
@pytest.mark.parametrize("kind", ["lda", "mixture", "ridge", "auto"])
def test_a_cooled_head_has_divided_scores_and_the_same_classes(kind, temperature):
    x, y = rows(80, classes=4)  # nobody has class 4
    solved = CLOSED_FORMS[kind]().untuned().solve(stats(x, y, CLASSES))
    points = torch.tensor(rows(200, seed=3)[0]).float()
    before = solved.model(points)
    solved.model.cool(temperature)
    after = solved.model(points)
    assert torch.equal(before.argmax(dim=1), after.argmax(dim=1))
    torch.testing.assert_close(after * temperature, before, rtol=1e-4, atol=1e-4)


def test_the_spread_of_scores_grows_with_them():
    x, y = rows(80)
    held = Components.of_classes(stats(x, y, CLASSES))
    model = CLOSED_FORMS["lda"](shrinkage=0.3).solve(stats(x, y, CLASSES)).model
    before = spread_of_scores(model, held)
    model.cool(0.1)
    assert spread_of_scores(model, held) == pytest.approx(10 * before, rel=1e-4)
