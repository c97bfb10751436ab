"""How heads of totals score rows that they have not seen, and their temperature."""

import numpy as np
import pytest
import torch

from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.models.closed_forms.components import Components, ScoredRows
from federatedscope_ggeur.models.closed_forms.left_out import log_losses
from federatedscope_ggeur.models.closed_forms.new_rows import NewRows

CLASSES, DIM, ROWS = 3, 24, 60
FORMS = [
    ("lda", {"shrinkage": 0.1}),
    ("lda", {"shrinkage": 0.1, "priors": "none", "standardize": True}),
    ("lda", {}),
    ("ridge", {"strength": 0.05}),
    ("ridge", {"standardize": True}),
]


def gaussian(seed, rows, centres, root):
    """Rows of classes of unequal sizes."""
    rng = np.random.default_rng(seed)
    labels = torch.from_numpy(rng.choice(CLASSES, p=[0.5, 0.3, 0.2], size=rows))
    noise = torch.from_numpy(rng.normal(size=(rows, DIM))) @ root
    return (centres[labels] + noise).float(), labels


@pytest.fixture(scope="module")
def population():
    rng = np.random.default_rng(1)
    centres = torch.from_numpy(rng.normal(size=(CLASSES, DIM)) * 0.6)
    return centres, torch.from_numpy(rng.normal(size=(DIM, DIM)) / DIM**0.5)


@pytest.mark.parametrize(("name", "settings"), FORMS)
def test_predicted_scores_are_those_of_new_rows(population, name, settings):
    """In the mean over 100 samples of 60 rows in 24 dimensions. What the head says of
    its own rows is far off."""
    form = CLOSED_FORMS[name](**settings)
    told, own, right = [], [], []
    x, y = gaussian(0, 3000, *population)
    for seed in range(1, 101):
        rows, labels = gaussian(seed, ROWS, *population)
        held = Statistics.from_embeddings(rows, labels, CLASSES)
        known, model = form.new_rows(form.seen(held)), form.solve(held).model
        found = (
            (known.means, known.scales**2 * known.covariance.trace()),
            spread(model(rows), labels),
            spread(model(x), y),
        )
        for (means, deviations), into in zip(found, (told, own, right)):
            centred = means - means.mean(dim=1, keepdim=True)
            into.append(torch.cat([centred.flatten(), deviations]).double())
    told, own, right = (torch.stack(each).mean(dim=0) for each in (told, own, right))

    def off(found, part):
        return float((found - right)[part].norm() / right[part].norm())

    means, deviations = slice(CLASSES**2), slice(CLASSES**2, None)
    assert off(told, means) < 0.1
    assert off(told, means) < 0.5 * off(own, means)
    assert off(told, deviations) < 0.15
    assert off(told, deviations) < 0.3 * off(own, deviations)


def spread(scores, labels):
    """The mean scores of each class, and the sum of the variances about them."""
    scores = scores.detach().double()
    parts = [scores[labels == c] for c in range(CLASSES)]
    means = torch.stack([part.mean(dim=0) for part in parts])
    return means, torch.stack([part.var(dim=0, unbiased=False).sum() for part in parts])


@pytest.mark.parametrize(("name", "settings"), FORMS)
def test_the_temperature_is_nearly_the_best_for_new_rows(population, name, settings):
    form, (x, y) = CLOSED_FORMS[name](**settings), gaussian(0, 3000, *population)
    lost = []
    for seed in range(1, 21):
        held = Statistics.from_embeddings(*gaussian(seed, ROWS, *population), CLASSES)
        by = [2.0 ** (step / 4) for step in range(-32, 33)]
        value = form.new_rows(form.seen(held)).temperature()
        losses, _ = log_losses(form.solve(held).model(x).double(), y, [value, *by])
        losses = losses.mean(dim=1).tolist()
        lost.append(losses[0] - min(losses))
    assert np.mean(lost) < 0.02


def test_without_known_spread_there_is_none(population):
    held = Statistics.from_embeddings(*gaussian(1, ROWS, *population), CLASSES)
    form = CLOSED_FORMS["mixture"]()
    assert form.new_rows(form.seen(held)) is None
    form = CLOSED_FORMS["lda"]().knowing(object())
    assert form.new_rows(form.seen(held)) is None
    rows = torch.eye(CLASSES).repeat(4, 1)
    held = Statistics.from_embeddings(rows, torch.arange(12) % CLASSES, CLASSES)
    for name in ("lda", "ridge"):
        form = CLOSED_FORMS[name]()
        assert form.temperature_of(form.solve(held), held) is None


LEFT_OUT = [
    ("lda", {"shrinkage": 0.02}, 0.01),
    ("lda", {"shrinkage": 0.6}, 0.01),
    ("lda", {"shrinkage": 0.6, "priors": "none"}, 0.06),
    ("ridge", {"strength": 0.02}, 0.02),
    ("ridge", {"strength": 2.0}, 0.01),
]


@pytest.mark.parametrize(("name", "settings", "most"), LEFT_OUT)
def test_they_are_scored_as_rows_that_are_left_out(name, settings, most):
    """Exact leave-one-out, in the mean over the rows of each class."""
    rng = np.random.default_rng(3)
    labels = torch.from_numpy(np.repeat([0, 1, 2], [260, 40, 12]))
    rows = torch.from_numpy(rng.normal(size=(312, 30))).float()
    rows[:, 0] += labels
    held = Statistics.from_embeddings(rows, labels, 3)
    form = CLOSED_FORMS[name](**settings)
    (scores,) = form.leave_out(Components.of_classes(held))(
        ScoredRows(rows, labels, 1, 0, torch.ones(312, dtype=torch.bool))
    )
    means, _ = spread(scores, labels)
    known = form.new_rows(form.seen(held))
    centred = known.means - known.means.mean(dim=1, keepdim=True)
    wanted = means - means.mean(dim=1, keepdim=True)
    assert float((centred - wanted).norm() / wanted.norm()) < most


def test_ridge_has_the_leverages_of_the_hat_matrix(population):
    rows, labels = gaussian(1, ROWS, *population)
    held = Statistics.from_embeddings(rows, labels, CLASSES)
    form = CLOSED_FORMS["ridge"](strength=0.05)
    known = form.new_rows(form.seen(held))
    z = rows.double() - rows.double().mean(dim=0)
    scatter = z.T @ z
    added = 0.05 * scatter.trace() / DIM * torch.eye(DIM)
    hat = 1 / ROWS + z @ torch.linalg.solve(scatter + added, z.T)
    leverages = 1 - 1 / known.scales
    assert float(known.counts @ leverages) == pytest.approx(float(hat.trace()))


@pytest.mark.parametrize(
    ("name", "settings", "degrees"),
    [("lda", {"shrinkage": 0.1}, ROWS - CLASSES), ("ridge", {"strength": 0.05}, ROWS)],
)
def test_the_covariance_is_that_of_the_heads_own_rows(
    population, name, settings, degrees
):
    rows, labels = gaussian(1, ROWS, *population)
    held = Statistics.from_embeddings(rows, labels, CLASSES)
    form = CLOSED_FORMS[name](**settings)
    known, scores = form.new_rows(form.seen(held)), form.solve(held).model(rows)
    scores = scores.double()
    apart = scores - spread(scores, labels)[0][labels]
    centred = torch.eye(CLASSES).double() - 1 / CLASSES
    wanted, found = apart.T @ apart / degrees, centred @ known.covariance @ centred
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("name", "settings"), FORMS)
def test_single_rows_of_classes_tell_nothing(name, settings):
    """Each class has one row, so nothing varies within it."""
    form = CLOSED_FORMS[name](**settings)
    held = Statistics.from_embeddings(torch.eye(2), torch.arange(2), 2)
    assert form.new_rows(form.seen(held)) is None


def test_the_same_totals_give_the_same_temperature():
    rng = np.random.default_rng(0)
    root = torch.from_numpy(rng.normal(size=(5, 5)))
    means = torch.from_numpy(rng.normal(size=(5, 5))) + 4 * torch.eye(5).double()
    counts = torch.tensor([5.0, 1.0, 9.0, 30.0, 2.0]).double()
    known = NewRows(counts, means, root.T @ root, torch.full((5,), 1.2).double())
    moved = known._replace(covariance=known.covariance * (1 + 1e-12))
    assert moved.temperature() == pytest.approx(known.temperature(), rel=1e-6)
    assert known.temperature() == pytest.approx(1.3987526, rel=1e-4)  # golden
    assert known._replace(scales=known.scales * 3).temperature() > known.temperature()
