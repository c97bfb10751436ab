"""The area under the curve and rates, by plain oracles."""

import numpy as np
import pytest
from scipy import stats

from federatedscope_ggeur.audit.scores import auc, hit_rate, membership


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


def test_verdicts():
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(2, 500))
    assert membership("A", "x", *noise).passed is True
    assert membership("A", "x", noise[0] + 1, noise[1]).passed is False
    assert membership("A", "x", noise[0], np.zeros(0)).passed is None
