"""Leave-one-out: equal to refitting without the row, in scores and in hit counts."""

import math

import left_out_oracle as oracle
import numpy as np
import pytest
import torch
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from solving import stats

from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.models.closed_forms.components import Components, ScoredRows
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
    return ScoredRows(
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


@pytest.mark.parametrize("kind", FORMS)
@examples(8)
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


# Clients' own heads: leave-one-out equals refitting; kappa nests the head of all.


KINDS, DIM = 3, 4


def made(seed=0, n=24):
    rng = np.random.default_rng(seed)
    y, k = rng.integers(KINDS, size=n), rng.integers(1, 3, size=n)
    x = 2 * rng.normal(size=(KINDS, DIM))[y] + rng.normal(size=(n, DIM)) + k[:, None]
    x *= np.geomspace(1, 20, DIM)
    y[:2], k[:2] = [0, 0], [1, 2]  # class 0 is on both
    return x, y, k


def fitted(x, y, k, kappa, g, scale, client=1):
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
        w = np.linalg.solve(cov, mean - m)
        found[c] = (w / scale, np.log(share) - (mean - m) @ w / 2 - w @ m)
    return found


def logits(found, x):
    scores = np.array([found[c][0] @ x + found[c][1] for c in sorted(found)])
    return scores - scores.mean()


def personal_parts(x, y):
    return Components.of_classes(stats(x, y, KINDS))


def own_of(x, y, k):
    mine = torch.from_numpy(k == 1)
    return OwnMeans.of(torch.from_numpy(x)[mine], torch.from_numpy(y)[mine], KINDS)


@pytest.mark.parametrize("standardize", [False, True])
def test_left_out_scores_are_those_of_refitting(standardize):
    x, y, k = made()
    form = CLOSED_FORMS["lda"](shrinkage=0.3, standardize=standardize)
    scale = x.std(0) if standardize else np.ones(DIM)
    score = PersonalHeads(form, personal_parts(x, y)).left_out(own_of(x, y, k))
    mine = np.flatnonzero(k == 1)
    rows = ScoredRows(
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


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("kappa", [math.inf, 30.0, 0.0])
def test_the_head_is_lda_with_means_in_between(kappa, standardize):
    x, y, k = made()
    form = CLOSED_FORMS["lda"](shrinkage=0.3, standardize=standardize)
    heads = PersonalHeads(form, personal_parts(x, y))
    head = heads.head(own_of(x, y, k), kappa, 2.0)
    scale = x.std(0) if standardize else np.ones(DIM)
    found = fitted(x, y, k, kappa, 0.3, scale)
    for row in x:
        scores = head(torch.from_numpy(row).float()).detach().numpy()
        np.testing.assert_allclose(
            2 * (scores - scores.mean()), logits(found, row), rtol=1e-4, atol=1e-4
        )


def test_withheld_classes_have_the_merged_mean():
    x, y, k = made()
    own = own_of(x, y, k)
    withheld = OwnMeans(own.counts * torch.tensor([1, 0, 1]), own.means)
    merged = torch.from_numpy(np.stack([x[y == c].mean(0) for c in range(KINDS)]))
    drawn = withheld.drawn_to(merged, torch.arange(KINDS), 1.0)
    assert torch.equal(drawn[1], merged[1])
    assert not torch.equal(drawn[0], merged[0])
