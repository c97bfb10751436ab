"""What one row changes of a release, and that noise has the claimed size."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from federatedscope_ggeur.extras.differential_privacy.noisy_release import (
    CLIP,
    GRID_BITS,
    MOMENTS,
    SPREAD,
    ReleasePlan,
    discrete_gaussian,
    epsilon_of,
    mu_of,
    replaced_mu,
    seeded_words,
    system_words,
    unit_rows,
)

C, D = 5, 12
PLAN = ReleasePlan(C, D, epsilon=1.0, delta=1e-5, square=True)
BLOCKS = {"counts": 1.0, "mean": 1.0, "sums": CLIP, "square": CLIP**2}


def rows_of(rng, n):
    sizes = 10.0 ** rng.uniform(-3, 3, (n, 1))
    features = torch.tensor(rng.normal(size=(n, D)) * sizes).float()
    return features, torch.tensor(rng.integers(0, C, n))


def blocks(features, labels, centre, plan=PLAN):
    """The blocks of a release without noise, in units, the square's as a vector that
    has its Frobenius norm."""
    moments = plan.moments(features, labels) / 2**GRID_BITS
    spread = plan.spread(features, labels, centre) / 2**GRID_BITS
    found = {"counts": moments[:C], "mean": moments[C:], "sums": spread[: C * D]}
    square = spread[C * D :].copy()
    square[D:] *= math.sqrt(2)
    return {**found, "square": square}


def distances(one, other):
    return {b: float(np.linalg.norm(one[b] - other[b])) for b in one}


def mu_between(one, other):
    found = distances(one, other)
    return math.sqrt(sum((found[b] / PLAN.scale(b)) ** 2 for b in found))


@pytest.mark.slow
def test_neighbours_never_differ_by_more_than_the_sensitivity():
    rng, replaced = np.random.default_rng(0), 0.0
    for _ in range(200):
        features, labels = rows_of(rng, int(rng.integers(1, 9)))
        centre = torch.tensor(rng.normal(size=D))
        centre = centre / centre.norm() * rng.uniform(0, 1)
        whole = blocks(features, labels, centre)
        less = blocks(features[:-1], labels[:-1], centre)
        for block, change in distances(whole, less).items():
            assert change <= BLOCKS[block] * (1 + 1e-9)
        assert mu_between(whole, less) <= PLAN.mu * (1 + 1e-9)
        other, label = rows_of(rng, 1)
        swapped = torch.cat([features[:-1], other]), torch.cat([labels[:-1], label])
        replaced = max(replaced, mu_between(whole, blocks(*swapped, centre)))
    assert replaced <= replaced_mu(PLAN) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("shares", "factor"),
    [
        ({"counts": 0.4, "mean": 0.3, "sums": 0.2, "square": 0.1}, 2.6),  # other class
        ({"counts": 0.1, "mean": 0.2, "sums": 0.5, "square": 0.2}, 3.2),  # the same
    ],
)
def test_a_replaced_row_counts_by_the_shares(shares, factor):
    plan = SimpleNamespace(mu=0.5, shares=shares)
    assert replaced_mu(plan) == pytest.approx(0.5 * factor**0.5)


def test_constructed_neighbours_reach_every_sensitivity():
    row = torch.zeros(1, D)
    row[0, 0] = 3.0
    centre = torch.zeros(D)
    centre[0] = -1.0
    whole = blocks(row, torch.tensor([2]), centre)
    nothing = blocks(row[:0], torch.tensor([], dtype=torch.int64), centre)
    for block, change in distances(whole, nothing).items():
        assert change >= 0.99 * BLOCKS[block]


def test_rows_without_a_length_become_zero():
    rows = torch.zeros(3, D)
    rows[1, 0], rows[2, 1] = float("nan"), float("inf")
    assert not unit_rows(rows).any()


def test_rows_are_no_longer_than_one_as_whole_numbers():
    rng = np.random.default_rng(1)
    found = unit_rows(rows_of(rng, 500)[0]).astype(object)
    assert max((found * found).sum(axis=1)) <= 2**32


def test_the_shares_of_clients_add_up():
    central = ReleasePlan(C, D, 1.0, 1e-5, True)
    shared = ReleasePlan(C, D, 1.0, 1e-5, True, clients=9, spared=3)
    each = ReleasePlan(C, D, 1.0, 1e-5, True, clients=9, spared=8)
    for block in BLOCKS:
        ratio = shared.total(block) / central.total(block)
        assert ratio == pytest.approx(math.sqrt(9 / 6), rel=1e-6)
        assert each.total(block) == pytest.approx(3 * central.total(block), rel=1e-6)
    assert shared.sharers(6) == pytest.approx(central.mu, rel=1e-6)
    assert shared.sharers(6) <= central.mu
    assert shared.sharers(5) > central.mu
    assert shared.sharers(0) == math.inf


@pytest.mark.parametrize("stage", [MOMENTS, SPREAD])
def test_the_noise_has_the_claimed_size(stage):
    plan = ReleasePlan(40, 30, 2.0, 1e-5, True)
    noise = plan.noise(stage, seeded_words(np.random.default_rng(3))) / 2**GRID_BITS
    assert len(noise) == plan.length(stage)
    parts = [("counts", 40, 1.0), ("mean", 30, 1.0)]
    if stage == SPREAD:
        off = 30 * 29 // 2
        parts = [("sums", 1200, 1.0), ("square", 30, 1.0), ("square", off, 0.5**0.5)]
    at = 0
    for block, size, factor in parts:
        part = noise[at : at + size] / (plan.scale(block) * factor)
        assert stats.kstest(part, "norm").pvalue > 1e-4
        at += size


def test_a_release_without_noise_is_what_was_summed():
    rng = np.random.default_rng(4)
    features, labels = rows_of(rng, 50)
    counts, centre = PLAN.centre(PLAN.moments(features, labels))
    found = PLAN.released(counts, centre, PLAN.spread(features, labels, centre))
    unit = features.double() / features.double().norm(dim=1, keepdim=True)
    torch.testing.assert_close(centre, unit.mean(dim=0), rtol=0, atol=1e-4)
    z = unit - centre
    z = z * (CLIP / z.norm(dim=1, keepdim=True)).clamp(max=1)
    sums = torch.zeros(C, D, dtype=torch.float64).index_add(0, labels, z)
    torch.testing.assert_close(found.sums, sums, rtol=0, atol=50 * 2e-5)
    torch.testing.assert_close(found.square, z.T @ z, rtol=0, atol=50 * 2e-5)
    assert found.counts.tolist() == torch.bincount(labels, minlength=C).tolist()
    assert found.classes == list(range(C))


def test_a_total_that_no_rows_have():
    total = PLAN.noise(MOMENTS, seeded_words(np.random.default_rng(6)))
    assert not PLAN.problem(MOMENTS, total, 10)
    total[0] = 2**62
    assert "noise" in PLAN.problem(MOMENTS, total, 10)


# The sampler against the probabilities that it must have.


def probabilities(deviation, most):
    """Of -most..most."""
    k = np.arange(-most, most + 1)
    weights = np.exp(-(k**2) / (2 * deviation**2))
    return weights / weights.sum()


def p_value(draws, expected):
    """Chi-squared of whole numbers `draws` against probabilities of -m..m; rare ones
    count together."""
    most = len(expected) // 2
    seen = np.bincount(draws + most, minlength=len(expected)).astype(float)
    wanted = expected * len(draws)
    common = wanted >= 20
    seen = np.append(seen[common], seen[~common].sum())
    wanted = np.append(wanted[common], wanted[~common].sum())
    return stats.chisquare(seen, wanted).pvalue


@pytest.mark.parametrize("deviation", [1, 2, 7])
def test_every_number_has_its_probability(deviation):
    words = seeded_words(np.random.default_rng(deviation))
    draws = discrete_gaussian(20_000, deviation, words)
    assert p_value(draws, probabilities(deviation, 12 * deviation)) > 1e-4


@pytest.mark.slow
def test_the_sum_of_clients_is_one_of_their_common_deviation():
    words = seeded_words(np.random.default_rng(1))
    parts = [discrete_gaussian(80_000, 8, words) for _ in range(4)]
    assert p_value(sum(parts), probabilities(16, 200)) > 1e-4


def test_words_of_the_system_never_repeat():
    assert not np.array_equal(system_words(4), system_words(4))
    draws = [discrete_gaussian(50, 2**31) for _ in range(2)]
    assert not np.array_equal(*draws)


@pytest.mark.parametrize("deviation", [0, -1, 2**50 + 1])
def test_a_deviation_that_it_cannot_have(deviation):
    with pytest.raises(ValueError, match="deviation"):
        discrete_gaussian(1, deviation)


# From epsilon to the noise: golden values, and an accountant of others as oracle.


GOLDEN = {1: 0.26805, 2: 0.50155, 4: 0.92493, 8: 1.66603}


@pytest.mark.parametrize("epsilon", GOLDEN)
def test_mu_of_an_epsilon(epsilon):
    assert mu_of(epsilon, 1e-5) == pytest.approx(GOLDEN[epsilon], abs=1e-5)


def test_no_noise_protects_nothing():
    assert epsilon_of(math.inf, 1e-5) == math.inf
    assert epsilon_of(1e4, 1e-5) == math.inf
    assert epsilon_of(0.0, 1e-5) == 0.0


@pytest.mark.slow
def test_an_accountant_of_others_agrees():
    accounting = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    epsilon, mu = 1, mu_of(1, 1e-5)
    found = accounting.from_gaussian_mechanism(
        1 / mu, value_discretization_interval=1e-5
    )
    assert found.get_delta_for_epsilon(epsilon) == pytest.approx(1e-5, rel=1e-4)
    assert found.get_epsilon_for_delta(1e-5) == pytest.approx(epsilon, abs=1e-6)
