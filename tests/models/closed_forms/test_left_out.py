"""Leave-one-out: equal to refitting without the row, in scores and in hit counts.

Temperatures: chosen by log-loss, and folded into heads without changing a class.
"""

import math

import closed_form_oracle as plain
import left_out_oracle as oracle
import numpy as np
import pytest
import torch
from closed_form_federations import components_of, scored
from examples import examples
from hypothesis import assume, example, given
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
from federatedscope_ggeur.models.closed_forms.left_out import left_out_hits, log_losses
from federatedscope_ggeur.models.closed_forms.personal import (
    KAPPAS,
    OwnMeans,
    PersonalHeads,
)

CLASSES = 4


@st.composite
def federations(draw):
    """Rows on clients of two domains, and how often each counts; some pairs of one row,
    some withheld."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, dim = draw(st.sampled_from([3, 8, 25, 40])), draw(st.sampled_from([1, 3, 9, 30]))
    num_clients = draw(st.integers(1, 5))
    labels = rng.integers(draw(st.integers(1, CLASSES)), size=n)
    clients = rng.integers(1, num_clients + 1, size=n)
    mixing = np.diag(np.geomspace(2, 0.2, dim))
    rows = rng.normal(size=(CLASSES, dim))[labels] + rng.normal(size=(n, dim)) @ mixing
    rows += draw(st.sampled_from([0.0, 3.0])) + 0.5 * (clients % 2)[:, None]
    threshold = draw(st.sampled_from([1, 1, 2]))
    pairs = np.array(
        [((labels == c) & (clients == k)).sum() for c, k in zip(labels, clients)]
    )
    # What is embedded is float32.
    rows = rows.astype("float32").astype("float64")
    return rows, labels, clients, pairs >= threshold, rng.integers(1, 5, size=n)


def rows_of(k, rows, labels, clients, inside, times=None):
    here = clients == k
    weights = None if times is None else times[here]
    return scored(rows[here], labels[here], k, k % 2, inside[here], weights)


def discriminant(grain, priors=True, of=oracle.mixture):
    def head(g):
        def scores(rows, labels, clients, domains, x):
            where = oracle.places(clients, domains, grain)
            return of(rows, labels, where, x, CLASSES, g, priors)

        return scores

    return head


def ridge(strength):
    return lambda rows, labels, clients, domains, x: oracle.ridge(
        rows, labels, x, CLASSES, strength
    )


def form(kind, **settings):
    return CLOSED_FORMS[kind](**settings)


FORMS = {
    "lda": (form("lda"), discriminant("class")),
    "lda, no priors": (form("lda", priors="none"), discriminant("class", False)),
    "by domain": (form("mixture"), discriminant("domain")),
    "by client": (form("mixture", components="client"), discriminant("client")),
    "by client, no priors": (
        form("mixture", components="client", priors="none"),
        discriminant("client", False),
    ),
    "rda": (form("rda", common=9), discriminant("class", of=oracle.rda)),
    "rda by client, no priors": (
        form("rda", components="client", common=9, priors="none"),
        discriminant("client", False, oracle.rda),
    ),
    "ridge": (form("ridge"), ridge),
    "ncm": (form("ncm"), lambda _: discriminant("class", False)(None)),
}
FORMS.update(
    {
        f"{name}, standardized": (form(FORMS[name][0].name, standardize=True), head)
        for name, head in (
            ("lda", discriminant("class")),
            ("by domain", discriminant("domain")),
            ("ridge", ridge),
        )
    }
)


def close(found, wanted, strength=None):
    """Up to a term that all classes share, within 1e-8 of the largest difference, or as
    far as float64 goes: to 8e-13 over the strength, on 3,000 federations."""
    bound = max(1e-8, 1e-12 / (strength or 1))
    seen = np.isfinite(wanted)
    assert (np.isfinite(found) == seen).all()
    if seen.any():
        found, wanted = (v[seen] - v[seen].mean() for v in (found, wanted))
        np.testing.assert_allclose(
            found, wanted, rtol=bound, atol=bound * max(1, abs(wanted).max())
        )


#: A row of each class: nothing is scattered but by rounding.
SINGLE = (
    np.array([[0.03961049], [-0.72684288], [-0.38495386]]),
    np.array([4, 3, 2]),
    np.ones(3, int),
    np.ones(3, bool),
    np.array([3, 1, 2]),
)


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("weighted", [False, True])
@examples(8)
@example(federation=SINGLE)
@given(federation=federations())
def test_equals_refitting_without_the_row(kind, weighted, federation):
    """And without all of its copies, if it counts several times."""
    chosen, head = FORMS[kind]
    rows, labels, clients, inside, copies = federation
    assume(inside.any())
    copies = copies if weighted else np.ones(len(rows), int)
    times = copies if weighted else None
    score = chosen.leave_out(
        components_of(rows, labels, clients, CLASSES, held=inside, weights=times)
    )
    values = [f.chosen if f.TUNED else None for f in chosen.candidates()]
    # The deviations that rows are divided by are held when a row is left out.
    counted = rows.repeat(inside * copies, axis=0)
    by = oracle.deviations(counted) if chosen.standardize else 1.0
    where = clients, clients % 2
    wanted = [
        oracle.left_out(head(v), rows / by, labels, *where, inside * copies)
        for v in values
    ]
    for k in sorted(set(clients.tolist())):
        mine = rows_of(k, rows, labels, clients, inside, times)
        indices = np.flatnonzero(clients == k)
        for value, found, expected in zip(values, score(mine), wanted):
            for scores, i in zip(found.numpy(), indices):
                if expected[i] is not None:
                    close(scores, expected[i], value)
        hits = left_out_hits(score, mine).tolist()
        for count, expected in zip(hits, wanted):
            margins = np.array([margin(expected[i], labels[i]) for i in indices])
            sure, possible = (copies[indices][margins > t].sum() for t in (1e-9, -1e-9))
            assert sure <= count <= possible  # the same but for exact ties


def margin(scores, label):
    """By how much a class wins, -inf where it is not seen."""
    if scores is None or not np.isfinite(scores[label]):
        return -np.inf
    return scores[label] - max([*np.delete(scores, label), -np.inf])


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_beyond_one_chunk_count_alike(weighted):
    rng = np.random.default_rng(3)
    labels, ones = rng.integers(CLASSES, size=1200), np.ones(1200, int)
    rows = 2 * rng.normal(size=(CLASSES, 5))[labels] + rng.normal(size=(1200, 5))
    times = 2 * ones if weighted else None
    score = form("lda").left_out(
        components_of(rows, labels, ones, CLASSES, weights=times)
    )
    mine = scored(rows, labels, weights=times)
    hits, none = (left_out_hits(score, one) for one in (mine, mine.part(slice(0))))
    right = [int((s.argmax(dim=1) == mine.labels).sum()) for s in score(mine)]
    assert hits.tolist() == [(1 + weighted) * n for n in right]
    assert none.tolist() == [0] * len(right)
    assert hits.dtype == none.dtype == (torch.float64 if weighted else torch.int64)


def test_ridge_does_not_depend_on_the_scale_of_weights():
    rng = np.random.default_rng(1)
    rows, labels, ones = rng.normal(size=(40, 6)), np.arange(40) % 3, np.ones(40, int)
    weights = rng.uniform(0.1, 3, size=40)
    found = []
    for own in (weights, weights / 7):
        parts = components_of(rows, labels, ones, CLASSES, weights=own)
        score = form("ridge").leave_out(parts)
        found.append(torch.stack(score(scored(rows, labels, weights=own))))
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


def test_merging_components_adds_the_scatter_of_their_means():
    rng = np.random.default_rng(0)
    labels, clients = rng.integers(3, size=60), rng.integers(1, 5, size=60)
    rows = rng.normal(size=(60, 4)) + 1e3
    parts = components_of(rows, labels, clients, CLASSES)
    for grain in ("client", "domain", "class"):
        merged = parts.merged(grain)
        where = oracle.places(clients, clients % 2, grain)
        where = where + 10 * (clients % 2) * (grain == "client")
        keys = sorted(set(zip(labels.tolist(), where.tolist())))
        assert merged.labels.tolist() == [c for c, _ in keys]
        scatter = np.zeros((4, 4))
        for (c, k), mean in zip(keys, merged.means.numpy()):
            mine = rows[(labels == c) & (where == k)]
            np.testing.assert_allclose(mean, mine.mean(axis=0), rtol=1e-13)
            scatter += (mine - mine.mean(axis=0)).T @ (mine - mine.mean(axis=0))
        np.testing.assert_allclose(merged.scatter.numpy(), scatter, rtol=1e-8)


# Clients' own heads: leave-one-out equals refitting; kappa nests the head of all.


KINDS, DIM = 3, 4


def made(seed=0, n=24):
    rng = np.random.default_rng(seed)
    y, k = rng.integers(KINDS, size=n), rng.integers(1, 3, size=n)
    x = 2 * rng.normal(size=(KINDS, DIM))[y] + rng.normal(size=(n, DIM)) + k[:, None]
    x *= np.geomspace(1, 20, DIM)
    y[:2], k[:2] = [0, 0], [1, 2]  # class 0 is on both
    return x, y, k


def fitted(x, y, k, kappa, point, client=1):
    """The scores of a point, less their mean, by LDA with the share 0.3."""
    covariance, scores = plain.common_covariance(x, y, 0.3), []
    for c in plain.seen(y):
        mine, mean = (y == c) & (k == client), x[y == c].mean(0)
        if mine.any() and math.isfinite(kappa):
            mean = (x[mine].sum(0) + kappa * mean) / (mine.sum() + kappa)
        away = point - mean
        distance = away @ np.linalg.solve(covariance, away)
        scores.append(plain.log_prior(y, c, True) - distance / 2)
    return plain.centred(np.array(scores))


def personal_parts(x, y):
    return Components.of_classes(stats(x, y, KINDS))


def own_of(x, y, k):
    mine = torch.from_numpy(k == 1)
    return OwnMeans.of(torch.from_numpy(x)[mine], torch.from_numpy(y)[mine], KINDS)


@pytest.mark.parametrize("standardize", [False, True])
def test_left_out_scores_are_those_of_refitting(standardize):
    x, y, k = made()
    form = CLOSED_FORMS["lda"](shrinkage=0.3, standardize=standardize)
    divided = x / x.std(0) if standardize else x
    score = PersonalHeads(form, personal_parts(x, y)).left_out(own_of(x, y, k))
    mine = np.flatnonzero(k == 1)
    for kappa, found in zip(KAPPAS, score(scored(divided[mine], y[mine]))):
        for i, scores in zip(mine, found.numpy()):
            rest = np.arange(len(y)) != i
            wanted = fitted(divided[rest], y[rest], k[rest], kappa, divided[i])
            np.testing.assert_allclose(
                plain.centred(scores), wanted, rtol=1e-8, atol=1e-8
            )


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("kappa", [math.inf, 30.0, 0.0])
def test_the_head_is_lda_with_means_in_between(kappa, standardize):
    x, y, k = made()
    form = CLOSED_FORMS["lda"](shrinkage=0.3, standardize=standardize)
    heads = PersonalHeads(form, personal_parts(x, y))
    head = heads.head(own_of(x, y, k), kappa, 2.0)
    divided = x / x.std(0) if standardize else x
    for row, point in zip(x, divided):
        scores = head(torch.from_numpy(row).float()).detach().numpy()
        wanted = fitted(divided, y, k, kappa, point)
        np.testing.assert_allclose(
            2 * plain.centred(scores), wanted, rtol=1e-4, atol=1e-4
        )


def test_withheld_classes_have_the_merged_mean():
    x, y, k = made()
    own = own_of(x, y, k)
    withheld = OwnMeans(own.counts * torch.tensor([1, 0, 1]), own.means)
    merged = torch.from_numpy(np.stack([x[y == c].mean(0) for c in range(KINDS)]))
    drawn = withheld.drawn_to(merged, torch.arange(KINDS), 1.0)
    assert torch.equal(drawn[1], merged[1])
    assert not torch.equal(drawn[0], merged[0])


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
    by, floors = (0.25, 1.0, 3.0), (0.0, 0.2)
    found, known, _ = left_out_losses(form.leave_out(held), scored(x, y), by, floors)
    wanted = np.zeros(len(by) * len(floors))
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        head = form.solve(stats(x[rest], y[rest], CLASSES)).model.double()
        logits = head(torch.tensor(x[i : i + 1]))[0]
        own = [(logits / t).softmax(0)[y[i]] for t in by]
        raised = [(1 - e) * p + e / CLASSES for e in floors for p in own]
        wanted += [smoothed_loss(p, CLASSES) for p in raised]
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
