"""The area under the curve and rates, by plain oracles."""

import numpy as np
import pytest
from scipy import stats

from federatedscope_ggeur.extras.audit.base import (
    auc,
    hit_rate,
    membership,
    more_than_chance,
)


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
    passed = membership("A", "x", *noise)
    assert (passed.passed, passed.chance, passed.tried) == (True, 0.5, 500)
    least = 0.60 + passed.value - passed.low
    assert f"about {least:.2f} or more fail" in passed.note
    assert membership("A", "x", noise[0] + 1, noise[1]).passed is False
    assert membership("A", "x", noise[0], np.zeros(0)).passed is None
