"""Leave-one-out: equal to refitting without the row, in scores and in hit counts."""

import math
from dataclasses import replace

import left_out_oracle as oracle
import numpy as np
import pytest
import torch
from closed_form_federations import components_of, make_federation
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from solving import SHAPES, stats

from federatedscope_ggeur.models import (
    CLOSED_FORMS,
    LinearHead,
    MixtureHead,
    ModelSettings,
    build_closed_form,
    build_model,
    load_vector,
    to_vector,
)
from federatedscope_ggeur.models.closed_forms.auto import Automatic
from federatedscope_ggeur.models.closed_forms.choices import SHRINKAGES
from federatedscope_ggeur.models.closed_forms.components import Components, Rows
from federatedscope_ggeur.models.closed_forms.left_out import left_out_hits
from federatedscope_ggeur.models.closed_forms.personal import (
    KAPPAS,
    OwnMeans,
    PersonalHeads,
)

CLASSES = 4


@st.composite
def federations(draw):
    """Rows on clients of two domains; some pairs of one row, some withheld."""
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
    return rows, labels, clients, clients % 2, pairs >= threshold


def parts_of(rows, labels, clients, domains, inside):
    return Components.joined(
        Components.of_client(
            stats(
                rows[inside & (clients == k)], labels[inside & (clients == k)], CLASSES
            ),
            k,
            str(domains[clients == k][0]),
            ("0", "1"),
        )
        for k in sorted(set(clients.tolist()))
    )


def rows_of(k, rows, labels, clients, domains, inside):
    here = clients == k
    return Rows(
        torch.from_numpy(rows[here]),
        torch.from_numpy(labels[here]),
        k,
        int(domains[here][0]),
        torch.from_numpy(inside[here]),
    )


def discriminant(grain, priors=True):
    def head(g):
        def scores(rows, labels, clients, domains, x):
            where = oracle.places(clients, domains, grain)
            return oracle.mixture(rows, labels, where, x, CLASSES, g, priors)

        return scores

    return head


def ridge(strength):
    return lambda rows, labels, clients, domains, x: oracle.ridge(
        rows, labels, x, CLASSES, strength
    )


def fedcof(strength):
    return lambda rows, labels, clients, domains, x: oracle.fedcof(
        rows, labels, clients, x, CLASSES, strength
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
    "ridge": (form("ridge"), ridge),
    "ncm": (form("ncm"), lambda _: discriminant("class", False)(None)),
    "fedcof": (form("fedcof"), fedcof),
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
    far as float64 goes with so small a strength."""
    bound = max(1e-8, 1e-13 / (strength or 1))
    seen = np.isfinite(wanted)
    assert (np.isfinite(found) == seen).all()
    if seen.any():
        found, wanted = (v[seen] - v[seen].mean() for v in (found, wanted))
        np.testing.assert_allclose(
            found, wanted, rtol=bound, atol=bound * max(1, abs(wanted).max())
        )


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMS)
@settings(max_examples=8, deadline=None)
@given(federation=federations())
def test_equals_refitting_without_the_row(kind, federation):
    chosen, head = FORMS[kind]
    rows, labels, clients, _, inside = federation
    assume(inside.any())
    score = chosen.leave_out(parts_of(*federation))
    values = [f.chosen if f.TUNED else None for f in chosen.candidates()]
    # The deviations that rows are divided by are held when a row is left out.
    by = oracle.deviations(rows[inside]) if chosen.standardize else 1.0
    divided = rows / by, *federation[1:]
    wanted = [oracle.left_out(head(v), *divided) for v in values]
    for k in sorted(set(clients.tolist())):
        mine = rows_of(k, *federation)
        indices = np.flatnonzero(clients == k)
        for value, found, expected in zip(values, score(mine), wanted):
            for scores, i in zip(found.numpy(), indices):
                if expected[i] is not None:
                    close(scores, expected[i], value)
        hits = left_out_hits(score, mine).tolist()
        for count, expected in zip(hits, wanted):
            margins = [margin(expected[i], labels[i]) for i in indices]
            sure, possible = (sum(m > t for m in margins) for t in (1e-9, -1e-9))
            assert sure <= count <= possible  # the same but for exact ties


def margin(scores, label):
    """By how much a class wins, -inf where it is not seen."""
    if scores is None or not np.isfinite(scores[label]):
        return -np.inf
    return scores[label] - max([*np.delete(scores, label), -np.inf])


def test_rows_beyond_one_chunk_count_alike():
    rng = np.random.default_rng(3)
    labels, n = rng.integers(CLASSES, size=1200), 1200
    rows = 2 * rng.normal(size=(CLASSES, 5))[labels] + rng.normal(size=(n, 5))
    ones = np.ones(n, int)
    held = rows, labels, ones, 0 * ones, ones > 0
    score = form("lda").left_out(parts_of(*held))
    mine = rows_of(1, *held)
    whole = [int((s.argmax(dim=1) == mine.labels).sum()) for s in score(mine)]
    assert left_out_hits(score, mine).tolist() == whole
    assert left_out_hits(score, mine.part(slice(0))).tolist() == [0] * len(whole)


def test_merging_components_adds_the_scatter_of_their_means():
    rng = np.random.default_rng(0)
    labels, clients = rng.integers(3, size=60), rng.integers(1, 5, size=60)
    rows = rng.normal(size=(60, 4)) + 1e3
    parts = parts_of(rows, labels, clients, clients % 2, np.ones(60, bool))
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


# `auto`: its candidates, the one it takes, the model of it.


DATA = make_federation(SHAPES["many rows"])


def by_kind(form):
    found = {}
    for candidate in form.candidates():
        choice = candidate.choice
        strength = choice.chosen if choice.TUNED else None
        name = f"{choice.name} z" if choice.standardize else choice.name
        found.setdefault(name, []).append(strength)
    return found


def test_candidates_are_all_kinds_with_their_open_strengths():
    found = by_kind(Automatic())
    order = ["lda", "lda z", "mixture", "mixture z"]
    assert found == {name: list(SHRINKAGES) for name in order}
    assert list(found) == order
    sections = {
        name: {k.name: k.default for k in form.SETTINGS}
        for name, form in CLOSED_FORMS.items()
    }
    sections["lda"]["shrinkage"] = 0.2
    chosen = by_kind(build_closed_form("auto", sections))
    assert (chosen["lda"], chosen["mixture"]) == ([0.2], list(SHRINKAGES))


@pytest.mark.parametrize(
    ("domains", "clients", "groups"),
    [
        ((0, 0, 1, 1), (1, 2, 3, 4), "domain"),
        ((0, 0, 0, 0), (1, 2, 1, 2), "client"),
        ((0, 0, 0, 0), (1, 1, 1, 1), None),
    ],
)
def test_the_mixture_is_of_domains_or_else_of_clients(domains, clients, groups):
    """With one domain and one client it would be LDA."""
    parts = components_of(*DATA, CLASSES)
    parts = replace(parts.merged("class"), domains=torch.tensor(domains))
    parts = replace(parts, clients=torch.tensor(clients))
    kinds = Automatic().for_components(parts).kinds()
    found = {kind.components for kind in kinds if kind.name == "mixture"}
    assert found == ({groups} if groups else set())
    if len(set(domains)) > 1:
        asked = CLOSED_FORMS["mixture"](components="client")
        kinds = Automatic(mixture=asked).for_components(parts).kinds()
        assert {kind.grain for kind in kinds} == {"class", "client"}


def test_a_start_of_training_is_linear():
    start = Automatic().as_start()
    assert "mixture" not in by_kind(start)
    solved = start.candidates()[0].solve(stats(*DATA[:2], CLASSES))
    assert isinstance(solved.model, LinearHead)
    built = build_model(6, CLASSES, ModelSettings(closed_form="auto", starts=True))
    assert isinstance(built, LinearHead)


@pytest.mark.parametrize("number", [0, 3, 14, 30, 45])
def test_a_candidate_is_the_head_of_its_kind(number):
    rows, labels, clients = DATA
    parts = components_of(rows, labels, clients, CLASSES)
    statistics = stats(rows, labels, CLASSES)
    candidate = Automatic().candidates()[number]
    solved = candidate.solve(statistics, parts)
    own = candidate.choice.solve(statistics, parts)
    points = torch.from_numpy(rows).float()
    torch.testing.assert_close(solved.model(points), own.model(points))
    assert solved.report["closed_form"] == candidate.choice.name
    assert isinstance(solved.model, MixtureHead)
    built = build_model(6, CLASSES, ModelSettings(closed_form="auto"))
    load_vector(built, to_vector(solved.model))
    assert torch.equal(built(points), solved.model(points))


def test_scores_are_those_of_the_kinds_in_order():
    rows, labels, clients = DATA
    parts = components_of(rows, labels, clients, CLASSES)
    here = clients == 2
    held = Rows(
        torch.from_numpy(rows[here]),
        torch.from_numpy(labels[here]),
        2,
        0,
        torch.ones(here.sum(), dtype=torch.bool),
    )
    form = Automatic()
    found = form.left_out(parts)(held)
    wanted = [s for kind in form.kinds() for s in kind.leave_out(parts)(held)]
    assert len(found) == len(form.candidates()) == len(wanted)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted))


def test_compressed_statistics_take_no_small_strength_and_are_not_standardized():
    form = Automatic()
    form.compressed = True
    found = by_kind(form)
    assert not [name for name in found if name.endswith(" z")]
    assert min(s for own in found.values() for s in own if s is not None) == 0.01


def test_a_target_that_is_set_is_the_only_one():
    form = Automatic(lda=CLOSED_FORMS["lda"](standardize=True))
    assert list(by_kind(form)) == ["lda z", "mixture", "mixture z"]


def test_without_rows_left_out_it_is_lda():
    rows, labels, clients = DATA
    parts = components_of(rows, labels, clients, CLASSES)
    statistics = stats(rows, labels, CLASSES)
    lda = CLOSED_FORMS["lda"]().untuned()
    assert lda.shrinkage == 0.3
    wanted = lda.solve(statistics).model.classifier.weight
    for form in (Automatic(), Automatic().untuned()):
        found = form.solve(statistics, parts)
        assert torch.equal(found.model.weight, wanted)
        assert found.report["shrinkage"] == 0.3


def test_ledoit_and_wolfs_rule_is_no_candidate():
    form = Automatic(lda=CLOSED_FORMS["lda"](rule="ledoit_wolf"))
    assert by_kind(form)["lda"] == list(SHRINKAGES)


# Clients' own heads: leave-one-out equals refitting; kappa nests the head of all.


PERSONAL_CLASSES, DIM = 3, 4


def made(seed=0, n=24):
    rng = np.random.default_rng(seed)
    y, k = rng.integers(PERSONAL_CLASSES, size=n), rng.integers(1, 3, size=n)
    x = (
        2 * rng.normal(size=(PERSONAL_CLASSES, DIM))[y]
        + rng.normal(size=(n, DIM))
        + k[:, None]
    )
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


def personal_parts(x, y):
    return Components.of_classes(stats(x, y, PERSONAL_CLASSES))


def own_of(x, y, k):
    mine = torch.from_numpy(k == 1)
    return OwnMeans.of(
        torch.from_numpy(x)[mine], torch.from_numpy(y)[mine], PERSONAL_CLASSES
    )


@pytest.mark.parametrize("standardize", [False, True])
def test_left_out_scores_are_those_of_refitting(standardize):
    x, y, k = made()
    form = CLOSED_FORMS["lda"](shrinkage=0.3, standardize=standardize)
    scale = x.std(0) if standardize else np.ones(DIM)
    score = PersonalHeads(form, personal_parts(x, y)).left_out(own_of(x, y, k))
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
    heads = PersonalHeads(form, personal_parts(x, y))
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
    merged = torch.from_numpy(
        np.stack([x[y == c].mean(0) for c in range(PERSONAL_CLASSES)])
    )
    drawn = withheld.drawn_to(merged, torch.arange(PERSONAL_CLASSES), 1.0)
    assert torch.equal(drawn[1], merged[1])
    assert not torch.equal(drawn[0], merged[0])
