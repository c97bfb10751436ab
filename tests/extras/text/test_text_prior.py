"""Text as a prior of class means: against plain numpy, row by row, and planted data."""

from __future__ import annotations

import numpy as np
import pytest
import text_oracle as oracle
import torch
from closed_form_federations import components_of
from solving import stats

from federatedscope_ggeur.extras.text.prior import (
    bridge,
    with_prior,
)
from federatedscope_ggeur.models.closed_forms import CLOSED_FORMS, Components, Rows
from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant

CLASSES, DIM, KAPPA = 5, 4, 3.0


def some(seed=0, count=40, classes=CLASSES - 1):
    """Rows of all classes but the last, on three clients, and text features."""
    rng = np.random.default_rng(seed)
    texts = oracle.unit(rng.normal(size=(CLASSES, DIM)))
    labels = rng.integers(0, classes, size=count)
    labels[:classes] = np.arange(classes)
    rows = 2 * texts[labels] + 0.7 * rng.normal(size=(count, DIM)) + 3
    rows = rows.astype(np.float32).astype(np.float64)
    texts = oracle.class_texts(texts).features.double().numpy()
    return rows, labels, rng.integers(1, 4, size=count), texts


def by_model(model, points):
    with torch.no_grad():
        return model(torch.from_numpy(points).float()).double().numpy()


def alike(found, expected):
    """Up to a term that all classes of a row share."""
    found = found - found.max(axis=1, keepdims=True)
    expected = expected - expected.max(axis=1, keepdims=True)
    return np.allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("priors", ["counts", "none"])
@pytest.mark.parametrize("kind", ["lda", "mixture"])
def test_a_head_with_a_prior_is_the_oracle(kind, priors):
    rows, labels, clients, texts = some()
    text = oracle.class_texts(texts, prior=KAPPA)
    more = {"components": "client"} if kind == "mixture" else {}
    form = CLOSED_FORMS[kind](**more, shrinkage=0.2, priors=priors).knowing(text)
    parts = components_of(rows, labels, clients, CLASSES)
    solved = form.solve(stats(rows, labels, CLASSES), parts)
    points, places = rows[:9] + 0.1, clients if kind == "mixture" else 0 * labels
    expected = oracle.scores(points, rows, labels, places, texts, KAPPA, 0.2, priors)
    # The last class has no rows, but a mean.
    assert np.isfinite(expected).all()
    assert alike(by_model(solved.model, points), expected)
    if kind == "lda":
        groups = [(c, rows[labels == c]) for c in range(CLASSES - 1)]
        a = oracle.bridge(groups, rows, texts)
        assert solved.report["text_bridge"] == pytest.approx(a)


@pytest.mark.parametrize("priors", ["counts", "none"])
@pytest.mark.parametrize("kind", ["lda", "mixture"])
@pytest.mark.parametrize("seed", [2, 3])
def test_rows_left_out_are_scored_as_if_they_had_never_been(kind, priors, seed):
    rows, labels, clients, texts = some(seed, count=14)
    if seed == 3:
        labels[labels == 2] = 1  # and class 2 has one row alone
        labels[0] = 2
    text = oracle.class_texts(texts, prior=KAPPA)
    settings = {"components": "client"} if kind == "mixture" else {}
    form = CLOSED_FORMS[kind](**settings, shrinkage=0.3, priors=priors).knowing(text)
    parts = components_of(rows, labels, clients, CLASSES)
    score, places = form.left_out(parts), clients if kind == "mixture" else 0 * clients
    for k in (1, 2, 3):
        own = np.nonzero(clients == k)[0]
        held = Rows(
            torch.from_numpy(rows[own]).float(),
            torch.from_numpy(labels[own]),
            k,
            ("0", "1").index(str(k % 2)),
            torch.ones(len(own), dtype=torch.bool),
        )
        found = score(held)[0].numpy()
        for at, i in enumerate(own):
            rest = np.arange(len(rows)) != i
            expected = oracle.scores(
                rows[i : i + 1], rows[rest], labels[rest], places[rest], texts,
                KAPPA, 0.3, priors,
            )[0]  # fmt: skip
            finite = np.isfinite(expected)
            assert (np.isfinite(found[at]) == finite).all()
            one, other = found[at][finite], expected[finite]
            assert np.allclose(one - one.max(), other - other.max(), atol=1e-4)


def test_rows_that_are_in_nothing_are_scored_by_the_head():
    rows, labels, clients, texts = some(4)
    form = LinearDiscriminant(shrinkage=0.3)
    form = form.knowing(oracle.class_texts(texts, prior=KAPPA))
    held = Rows(
        torch.from_numpy(rows).float(), torch.from_numpy(labels), 1, 1,
        torch.zeros(len(rows), dtype=torch.bool),
    )  # fmt: skip
    found = form.left_out(components_of(rows, labels, clients, CLASSES))(held)[0]
    solved = form.solve(stats(rows, labels, CLASSES))
    assert alike(found.numpy(), by_model(solved.model, rows))


def test_text_that_points_the_wrong_way_says_nothing():
    rows, labels, _, texts = some()
    parts = Components.of_classes(stats(rows, labels, CLASSES))
    against = oracle.class_texts(-texts, prior=KAPPA)
    moved = with_prior(parts, against)
    assert moved.a == 0
    assert moved.labels.tolist() == [0, 1, 2, 3]
    assert bridge(parts, oracle.class_texts(texts).offsets) > 0
    form = LinearDiscriminant(shrinkage=0.2).knowing(against)
    found = by_model(form.solve(stats(rows, labels, CLASSES)).model, rows)
    assert (found.argmax(axis=1) < CLASSES - 1).all()


def test_without_a_prior_text_changes_no_bit():
    rows, labels, _, texts = some()
    plain = LinearDiscriminant(shrinkage=0.2)
    heads = [
        form.solve(stats(rows, labels, CLASSES)).model.classifier.weight
        for form in (plain, plain.knowing(oracle.class_texts(texts)))
    ]
    assert torch.equal(*heads)
