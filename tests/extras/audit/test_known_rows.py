"""A2, A3, A8, A10: members are told where something says so, and not by chance.

Tests of audit/class_rows.py, too: A1 and A1b, which solve for rows.
"""

import numpy as np
import pytest
import torch
from planted import CLOCK, gaussian, only, relu_rows, transcript, truth_of, uploaded
from scipy import stats

from federatedscope_ggeur.extras.audit.base import (
    Clock,
    Report,
    auc,
    hit_rate,
    more_than_chance,
)
from federatedscope_ggeur.extras.audit.known_rows import (
    a1,
    a1b,
    a2,
    a3,
    a8,
    a10,
    by_norms,
    by_vertices,
)
from federatedscope_ggeur.extras.audit.released import a4, a5
from federatedscope_ggeur.extras.audit.told_numbers import a7
from federatedscope_ggeur.federation.exchanges.augmentation.messages import (
    Geometry,
    Prototypes,
)
from federatedscope_ggeur.geometry import GeometricShape, Space, Statistics

DIM = 40


def federation(rows=20, dim=DIM, seed=0):
    """Three clients with two classes each, and as many rows that none holds."""
    clients = {
        k: (gaussian(seed + k, 2 * rows, dim), torch.arange(2 * rows) % 2)
        for k in (1, 2, 3)
    }
    others = gaussian(seed + 99, 6 * rows, dim), torch.arange(6 * rows) % 2
    return clients, truth_of(clients, others, classes=2)


def merged(clients):
    x, y = (torch.cat(parts) for parts in zip(*clients.values()))
    return Statistics.from_embeddings(x, y, 2)


def raw(dim=DIM):
    return Space.raw(dim)


@pytest.mark.parametrize("content", ["class", "pooled"])
def test_one_upload_tells_members_by_its_span(content):
    clients, truth = federation(rows=12)
    seen = transcript(uploads=uploaded(clients, classes=2, content=content))
    found = only(a2(seen, truth, CLOCK))
    assert found.value > 0.99
    assert found.passed is False


def test_means_of_many_rows_alone_hardly_do():
    clients, truth = federation(rows=400, dim=5)
    seen = transcript(uploads=uploaded(clients, classes=2, content="means"))
    found = only(a2(seen, truth, CLOCK))
    assert found.value < 0.58
    assert found.passed is True


def test_shapes_of_classes_tell_every_client():
    clients, truth = federation(rows=9)
    held = merged(clients)
    shapes = {c: GeometricShape.from_statistics(held, c) for c in held.classes}
    seen = transcript(
        settings=["ggeur.privacy.min_samples", "5"],
        geometry=Geometry(shapes),
        space=raw(),
    )
    found = only(a3(seen, truth, CLOCK))
    assert found.value == 1.0
    assert found.observer == "client 1"


def test_a_pooled_shape_of_many_rows_does_not():
    clients, truth = federation(rows=400, dim=5)
    shape = GeometricShape.pooled(merged(clients).to("pooled"))
    geometry = Geometry({0: shape, 1: shape}, pooled=True)
    found = only(a3(transcript(geometry=geometry, space=raw(5)), truth, CLOCK))
    assert found.value < 0.58
    assert found.passed is True


def test_prototypes_of_few_rows_are_near_them():
    clients, truth = federation(rows=3)
    means = [
        rows[labels == c].mean(0)
        for rows, labels in (clients[2], clients[3])
        for c in (0, 1)
    ]
    labels = torch.tensor([0, 1, 0, 1])
    prototypes = {1: Prototypes(labels, torch.stack(means))}
    seen = transcript(prototypes=prototypes, space=raw())
    found = only(a8(seen, truth, CLOCK))
    assert found.value > 0.65
    assert found.passed is False


def test_prototypes_of_many_rows_are_not():
    clients, truth = federation(rows=500, dim=5)
    held = merged(clients)
    own = torch.tensor([0, 1]), held.means.float(), held.counts
    seen = transcript(prototypes={1: Prototypes(*own)}, space=raw(5))
    found = only(a8(seen, truth, CLOCK))
    assert found.value < 0.58
    assert found.passed is True


@pytest.mark.parametrize(("rows", "fails"), [(14, True), (2000, False)])
def test_sums_tell_members_where_rows_are_few(rows, fails):
    clients, truth = federation(rows=rows, dim=DIM if fails else 5)
    held = merged(clients).to("pooled")
    found = only(a10(transcript(summed=held), truth, CLOCK))
    assert (found.passed is False) == fails
    assert found.low <= found.value <= found.high


def test_where_nothing_goes_nothing_is_told():
    _, truth = federation()
    for attack in (a1, a1b, a2, a3, a4, a5, a7, a8, a10):
        found = only(attack(transcript(), truth, CLOCK))
        assert (found.value, found.passed, found.tried) == (None, None, None)


def test_scores_of_members_are_not_better_by_chance_than_of_others():
    """Members of another federation are no members."""
    _, truth = federation(rows=12)
    strangers, _ = federation(rows=12, seed=500)
    seen = transcript(uploads=uploaded(strangers, classes=2))
    found = only(a2(seen, truth, CLOCK))
    assert abs(found.value - 0.5) < 0.15
    assert np.isfinite(found.value)


def one_class(rows):
    return {1: (rows, torch.zeros(len(rows), dtype=torch.int64))}


@pytest.mark.parametrize("n", [2, 5, 8])
def test_rows_that_are_not_negative_are_recovered(n):
    clients = one_class(relu_rows(n, n))
    seen = transcript(uploads=uploaded(clients))
    found = only(a1(seen, truth_of(clients), CLOCK))
    assert found.value == n
    assert found.passed is False


@pytest.mark.slow
def test_rows_without_zeros_are_not():
    clients = one_class(gaussian(0, 6, dim=40, shift=50.0))
    seen = transcript(uploads=uploaded(clients))
    found = only(a1(seen, truth_of(clients), Clock(3)))
    assert found.value == 0 or found.value is None
    assert "safe" not in found.note


def test_a_pooled_scatter_of_two_classes_is_no_target_and_of_one_it_is():
    x, y = relu_rows(3, 10), torch.arange(10) % 2
    clients = {1: (x, y)}
    pooled = uploaded(clients, content="pooled")
    found = only(a1(transcript(uploads=pooled), truth_of(clients), CLOCK))
    assert found.value is None
    clients = one_class(relu_rows(4, 5))
    pooled = uploaded(clients, content="pooled")
    assert only(a1(transcript(uploads=pooled), truth_of(clients), CLOCK)).value == 5


@pytest.mark.parametrize("n", [2, 3, 4])
def test_rows_of_length_1_are_recovered_by_their_norms(n):
    x = gaussian(n, n, dim=30)
    x = x / x.norm(dim=1, keepdim=True)
    clients = one_class(x)
    seen = transcript(uploads=uploaded(clients))
    found = only(a1b(seen, truth_of(clients), CLOCK))
    assert found.value >= (n if n < 4 else 1)
    assert found.passed is False


def test_rows_of_other_lengths_are_not():
    clients = one_class(gaussian(1, 4, dim=30))
    found = only(a1b(transcript(uploads=uploaded(clients)), truth_of(clients), CLOCK))
    assert found.value == 0
    assert "not recovered in 3600 s" in found.note


def test_no_time_finds_nothing_and_says_so():
    held = Statistics.from_embeddings(relu_rows(1, 5), torch.zeros(5).long(), 1)
    args = held.means[0], held.factor(0), 5, Clock(0), 0
    assert len(by_vertices(*args)) == 0
    assert len(by_norms(*args)) == 0


# The area under the curve and rates, by plain oracles.


def test_auc_by_all_pairs():
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 9, 40) + 1.0, rng.integers(0, 9, 30) * 1.0
    pairs = [(a > b) + 0.5 * (a == b) for a in one for b in other]
    value, low, high = auc(one, other)
    assert value == pytest.approx(np.mean(pairs), abs=1e-12)
    assert low < value < high


def test_the_interval_holds_as_often_as_it_says():
    rng = np.random.default_rng(1)
    right = stats.norm.cdf(1 / 2**0.5)
    inside = 0
    for _ in range(400):
        _, low, high = auc(rng.normal(1, 1, 60), rng.normal(0, 1, 60))
        inside += low <= right <= high
    assert 0.91 < inside / 400 < 0.98


def test_members_above_all_but_one_percent_of_the_others():
    members, others = np.arange(100) + 0.5, np.arange(100) * 1.0
    rate, low = hit_rate(members + 90, others, 0.01, 1)
    assert rate == 0.91
    assert low == pytest.approx(stats.beta.ppf(0.05, 91, 10))
    assert hit_rate(members - 200, others, 0.01, 1) == (0.0, 0.0)


@pytest.mark.parametrize(("tries", "p"), [(1, 0.04), (1, 0.06), (20, 0.1), (200, 0.02)])
def test_hits_that_are_no_chance_by_the_binomial(tries, p):
    least = more_than_chance([p] * tries)
    assert stats.binom.sf(least - 1, tries, p) <= 0.05
    assert least == tries + 1 or stats.binom.sf(least - 2, tries, p) > 0.05


def test_hits_of_unlike_chances():
    rng = np.random.default_rng(0)
    chances = rng.random(30) / 3
    hits = (rng.random((20000, 30)) < chances).sum(axis=1)
    least = more_than_chance(chances)
    assert (hits >= least).mean() < 0.06
    assert (hits >= least - 1).mean() > 0.04


def test_verdicts():
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(2, 500))
    report = Report("A", "x", "membership")
    (passed,) = report.membership(*noise)
    assert (passed.passed, passed.chance, passed.tried) == (True, 0.5, 500)
    least = 0.60 + passed.value - passed.low
    assert f"about {least:.2f} or more fail" in passed.note
    assert report.membership(noise[0] + 1, noise[1])[0].passed is False
    assert report.membership(noise[0], np.zeros(0))[0].passed is None
