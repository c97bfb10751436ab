"""Text as a prior of class means: against plain numpy, row by row, and planted data."""

import numpy as np
import pytest
import torch
from closed_form_federations import components_of
from solving import stats

from federatedscope_ggeur import models
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.text.classes import ClassTexts, EnsembleHead
from federatedscope_ggeur.extras.text.prior import bridge, with_prior
from federatedscope_ggeur.extras.text.prompts import TextPull
from federatedscope_ggeur.geometry import Space, Statistics
from federatedscope_ggeur.methods import LocalHooks
from federatedscope_ggeur.models.closed_forms import (
    CLOSED_FORMS,
    Components,
    ScoredRows,
)
from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant

CLASSES, DIM, KAPPA = 5, 4, 3.0


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def class_texts(features, scale=10.0, prior=0.0, ensemble=0.0) -> ClassTexts:
    rows = torch.from_numpy(unit(features)).float()
    return ClassTexts(rows, scale, "key", prior=prior, ensemble=ensemble)


def plain_bridge(groups, rows, texts):
    """a: `groups` are (class, rows of it), `rows` all of them."""
    m, d = rows.mean(axis=0), texts - texts.mean(axis=0)
    above = sum(len(x) * (x.mean(axis=0) - m) @ d[c] for c, x in groups)
    below = sum(len(x) * d[c] @ d[c] for c, x in groups)
    return max(0.0, above / below) if below > 0 else 0.0


def plain_scores(points, rows, labels, places, texts, kappa, g, priors):
    """Scores [n, C] of LDA (all `places` alike) or of the mixture, with the prior.

    -inf for a class that nothing is known of.
    """
    num_classes, dim = texts.shape
    d, m = texts - texts.mean(axis=0), rows.mean(axis=0)
    keys = sorted({(int(c), int(p)) for c, p in zip(labels, places)})
    groups = [(c, rows[(labels == c) & (places == p)]) for c, p in keys]
    a = plain_bridge(groups, rows, texts)
    scatter = sum((x - x.mean(0)).T @ (x - x.mean(0)) for _, x in groups)
    degrees = len(rows) - len(groups)
    size = np.trace(scatter) / max(degrees, 1) / dim
    if degrees <= 0 or size <= 1e-12:
        covariance = np.eye(dim)
    else:
        covariance = (1 - g) * scatter / degrees + g * size * np.eye(dim)
    guess = m + a * d
    unseen = sorted(set(range(num_classes)) - set(labels.tolist())) if a > 0 else []
    groups += [(c, np.zeros((0, dim))) for c in unseen]
    classes = np.array([c for c, _ in groups])
    weights = np.array([len(x) + kappa for _, x in groups])
    means = [(x.sum(0) + kappa * guess[c]) / n for (c, x), n in zip(groups, weights)]
    logs = np.log(weights / weights.sum())
    if priors == "none":
        sums = np.array([weights[classes == c].sum() for c in classes])
        logs = np.log(weights / sums)
    found = np.full((len(points), num_classes), -np.inf)
    inverse = np.linalg.inv(covariance)
    for mean, log, c in zip(means, logs, classes):
        apart = points - mean
        own = log - np.einsum("nd,de,ne->n", apart, inverse, apart) / 2
        found[:, c] = np.logaddexp(found[:, c], own)
    return found


def some(seed=0, count=40, classes=CLASSES - 1):
    """Rows of all classes but the last, on three clients, and text features."""
    rng = np.random.default_rng(seed)
    texts = unit(rng.normal(size=(CLASSES, DIM)))
    labels = rng.integers(0, classes, size=count)
    labels[:classes] = np.arange(classes)
    rows = 2 * texts[labels] + 0.7 * rng.normal(size=(count, DIM)) + 3
    rows = rows.astype(np.float32).astype(np.float64)
    texts = class_texts(texts).features.double().numpy()
    return rows, labels, rng.integers(1, 4, size=count), texts


def held_by(k, rows, labels, inside):
    """Rows of a client, all or none of which are in its statistics."""
    every = torch.full((len(rows),), inside)
    return ScoredRows(
        torch.from_numpy(rows).float(), torch.from_numpy(labels), k, k % 2, every
    )


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
    text = class_texts(texts, prior=KAPPA)
    more = {"components": "client"} if kind == "mixture" else {}
    form = CLOSED_FORMS[kind](**more, shrinkage=0.2, priors=priors).knowing(text)
    parts = components_of(rows, labels, clients, CLASSES)
    solved = form.solve(stats(rows, labels, CLASSES), parts)
    points, places = rows[:9] + 0.1, clients if kind == "mixture" else 0 * labels
    expected = plain_scores(points, rows, labels, places, texts, KAPPA, 0.2, priors)
    # The last class has no rows, but a mean.
    assert np.isfinite(expected).all()
    assert alike(by_model(solved.model, points), expected)
    if kind == "lda":
        groups = [(c, rows[labels == c]) for c in range(CLASSES - 1)]
        a = plain_bridge(groups, rows, texts)
        assert solved.report["text_bridge"] == pytest.approx(a)


@pytest.mark.parametrize("priors", ["counts", "none"])
@pytest.mark.parametrize("kind", ["lda", "mixture"])
@pytest.mark.parametrize("seed", [2, 3])
def test_rows_left_out_are_scored_as_if_they_had_never_been(kind, priors, seed):
    rows, labels, clients, texts = some(seed, count=14)
    if seed == 3:
        labels[labels == 2] = 1  # and class 2 has one row alone
        labels[0] = 2
    text = class_texts(texts, prior=KAPPA)
    settings = {"components": "client"} if kind == "mixture" else {}
    form = CLOSED_FORMS[kind](**settings, shrinkage=0.3, priors=priors).knowing(text)
    parts = components_of(rows, labels, clients, CLASSES)
    score, places = form.left_out(parts), clients if kind == "mixture" else 0 * clients
    for k in (1, 2, 3):
        own = np.nonzero(clients == k)[0]
        found = score(held_by(k, rows[own], labels[own], True))[0].numpy()
        for at, i in enumerate(own):
            rest = np.arange(len(rows)) != i
            expected = plain_scores(
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
    form = form.knowing(class_texts(texts, prior=KAPPA))
    score = form.left_out(components_of(rows, labels, clients, CLASSES))
    found = score(held_by(1, rows, labels, False))[0]
    solved = form.solve(stats(rows, labels, CLASSES))
    assert alike(found.numpy(), by_model(solved.model, rows))


def test_text_that_points_the_wrong_way_says_nothing():
    rows, labels, _, texts = some()
    parts = Components.of_classes(stats(rows, labels, CLASSES))
    against = class_texts(-texts, prior=KAPPA)
    _, _, moved, report = with_prior(parts, against)
    assert report == {"text_bridge": 0}
    assert moved.tolist() == [0, 1, 2, 3]
    assert bridge(parts, class_texts(texts).offsets) > 0
    form = LinearDiscriminant(shrinkage=0.2).knowing(against)
    found = by_model(form.solve(stats(rows, labels, CLASSES)).model, rows)
    assert (found.argmax(axis=1) < CLASSES - 1).all()


def test_without_a_prior_text_changes_no_bit():
    rows, labels, _, texts = some()
    plain = LinearDiscriminant(shrinkage=0.2)
    heads = [
        form.solve(stats(rows, labels, CLASSES)).model.classifier.weight
        for form in (plain, plain.knowing(class_texts(texts)))
    ]
    assert torch.equal(*heads)


# The zero-shot head: its weights, and planted features.
#
# Tests of extras/text/classes.py.


NOTHING = Statistics.empty(3, 4, "means")


def test_weights_are_the_scaled_features_and_no_statistics_are_needed():
    texts = class_texts(np.random.default_rng(0).normal(size=(3, 4)), scale=50.0)
    solved = CLOSED_FORMS["zeroshot"]().knowing(texts).solve(NOTHING)
    assert torch.equal(solved.model.classifier.weight, 50 * texts.features)
    assert torch.equal(solved.model.classifier.bias, torch.zeros(3))
    assert solved.report == {
        "rows": 0, "classes": 3, "left_out": 0, "logit_scale": 50.0
    }  # fmt: skip
    with pytest.raises(ConfigError, match="zeroshot needs text features"):
        CLOSED_FORMS["zeroshot"]().solve(NOTHING)


def test_rows_left_out_have_its_cosine_logits():
    rng = np.random.default_rng(1)
    texts, rows = class_texts(rng.normal(size=(3, 4))), rng.normal(size=(5, 4))
    form = CLOSED_FORMS["zeroshot"]().knowing(texts)
    held = held_by(1, rows, np.zeros(5, dtype=np.int64), True)
    found = form.left_out(Components.of_classes(NOTHING))(held)[0]
    expected = 10 * unit(rows) @ texts.features.double().numpy().T
    assert np.allclose(found, expected)


# Zero-shot and a closed form together, in plain numpy; as vectors and state dicts.


def parts():
    rng = np.random.default_rng(0)
    texts = rng.normal(size=(3, 4))
    texts /= np.linalg.norm(texts, axis=1, keepdims=True)
    head = models.LinearHead(4, 3).reset(torch.Generator().manual_seed(0))
    text = ClassTexts(torch.from_numpy(texts).float(), 20.0, ensemble=0.5)
    return head, text, texts, rng.normal(size=(6, 4)) * 3


def test_logits():
    head, text, texts, rows = parts()
    ensemble = text.ensemble_of(head)
    assert text.ensemble_of(ensemble) is ensemble
    found = ensemble(torch.from_numpy(rows).float())
    weight, bias = head.classifier.weight, head.classifier.bias
    linear = rows @ weight.detach().numpy().T + bias.detach().numpy()
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    expected = 20 * unit @ texts.T + 0.5 * linear
    assert np.allclose(found.detach().numpy(), expected, atol=1e-4)


def test_a_head_alone_keeps_its_logits():
    head, _, _, rows = parts()
    x = torch.from_numpy(rows).float()
    mixture = models.MixtureHead.of_components(
        torch.randn(5, 4), torch.randn(5), torch.tensor([0, 0, 1, 2, 2]), 3
    )
    for one in (head, mixture):
        assert torch.allclose(EnsembleHead.of(one)(x), one(x), atol=1e-6)
    vector = models.to_vector(EnsembleHead.of(mixture))
    other = EnsembleHead(4, 3)
    models.load_vector(other, vector)
    assert torch.allclose(other(x), mixture(x), atol=1e-6)
    again = EnsembleHead(4, 3)
    again.load_state_dict(other.state_dict())
    assert torch.equal(models.to_vector(again), vector)
    with pytest.raises(ConfigError, match="parameters do not fit"):
        models.load_vector(other, vector[:-1])


def test_there_is_no_last_layer():
    model = EnsembleHead(4, 3).reset()
    assert not models.to_vector(model)[: 3 * 4].any()
    with pytest.raises(ConfigError, match="no last layer"):
        model.last_input(torch.zeros(1, 4))
    with pytest.raises(ConfigError, match="no last layer"):
        _ = model.classifier


# The pull to the zero-shot head against finite differences, and heads between.


C, D = 3, 4


def draws(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


SPACES = [Space.raw(D), Space("standard", draws(D).double(), 0.5)]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.kind)
def test_the_gradient_is_that_of_the_square_on_raw_embeddings(space):
    model, target = models.LinearHead(D, C), draws(C, D)
    pull = TextPull(target, 0.7)
    params, gradient = draws(C * D + C), torch.zeros(C * D + C)
    pull.added(LocalHooks(), model, space).add_correction(params, gradient)

    def loss(vector):
        weight = models.fold(model, vector, space)[: C * D].view(C, D).double()
        return 0.7 * float((weight - target).square().sum())

    for i in range(len(params)):
        step = torch.zeros_like(params)
        step[i] = 1e-2  # a quadratic: central differences have no error of their own
        found = (loss(params + step) - loss(params - step)) / 2e-2
        assert found == pytest.approx(float(gradient[i]), rel=1e-2, abs=2e-2)


def test_a_methods_own_correction_stays():
    model, called = models.LinearHead(D, C), []
    hooks = LocalHooks(add_correction=lambda params, gradient: called.append(1))
    pull = TextPull(draws(C, D), 0.5).added(hooks, model, Space.raw(D))
    pull.add_correction(draws(C * D + C), torch.zeros(C * D + C))
    assert called == [1]
