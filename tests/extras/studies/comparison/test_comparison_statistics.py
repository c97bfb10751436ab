"""Statistics over seeds, against scipy and plainly written oracles."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from federatedscope_ggeur.extras.studies.comparison.labels import (
    Spread,
    differences,
    holm,
    paired,
)

SCORES = st.floats(0, 1).map(lambda x: round(x, 4))
TABLES = st.integers(2, 8).flatmap(
    lambda n: st.lists(st.lists(SCORES, min_size=n, max_size=n), min_size=2, max_size=4)
)


def by_seed(values):
    return dict(enumerate(values))


@pytest.mark.slow
@given(st.lists(SCORES, min_size=2, max_size=20))
def test_mean_deviation_and_interval_are_scipys(values):
    spread = Spread.of(values)
    assert spread.mean == pytest.approx(np.mean(values))
    assert spread.sd == pytest.approx(np.std(values, ddof=1), abs=1e-9)
    if np.ptp(values) < 1e-9:
        assert (spread.low, spread.high) == (None, None)
        return
    expected = stats.t.interval(
        0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values)
    )
    assert (spread.low, spread.high) == pytest.approx(expected)


def test_of_none_one_and_equal_numbers():
    assert Spread.of([]) is None
    assert Spread.of([0.5]) == Spread(1, 0.5, None, None, None)
    # 0.1 + 0.2 is not 0.3 to the bit: rounding is no spread.
    assert Spread.of([0.3, 0.1 + 0.2, 0.3]).sd == 0.0
    assert Spread.of([0.5, 0.5]).low is None


@settings(max_examples=40)
@given(TABLES)
def test_a_table_is_tested_as_scipy_does(table):
    base, *others = table
    assume(all(np.ptp(np.subtract(row, base)) > 1e-6 for row in others))
    found = differences(
        {str(i): (by_seed(r), by_seed(base)) for i, r in enumerate(others)}
    )
    ps = [stats.ttest_rel(row, base).pvalue for row in others]
    assert [d.p for d in found.values()] == pytest.approx(ps, abs=1e-9)
    assert [d.p_holm for d in found.values()] == pytest.approx(plain_holm(ps), abs=1e-9)
    for row, d in zip(others, found.values()):
        assert d.spread.mean == pytest.approx(np.mean(np.subtract(row, base)))
        assert d.spread.n == len(base)
        assert (d.p_wilcoxon is None) == (len(base) < 6)
    if len(base) >= 6:
        ranks = [plain_wilcoxon(np.round(np.subtract(row, base), 10)) for row in others]
        assert [d.p_wilcoxon for d in found.values()] == pytest.approx(ranks)
        corrected = [d.p_wilcoxon_holm for d in found.values()]
        assert corrected == pytest.approx(plain_holm(ranks))


def plain_wilcoxon(differences):
    """Every choice of signs, counted."""
    differences = differences[differences != 0]
    ranks = stats.rankdata(np.abs(differences))
    found = ranks[differences > 0].sum()
    signs = itertools.product((0, 1), repeat=len(ranks))
    sums = np.array([np.dot(one, ranks) for one in signs])
    return min(1, 2 * min(np.mean(sums <= found), np.mean(sums >= found)))


@pytest.mark.slow
@settings(max_examples=30)
@given(st.sets(st.integers(1, 10**6), min_size=6, max_size=30), st.randoms())
def test_wilcoxon_without_ties_is_scipys(sizes, random):
    values = [size * random.choice((-1, 1)) for size in sizes]
    _, _, p = paired(by_seed(values), by_seed([0] * len(values)))
    assert p == pytest.approx(stats.wilcoxon(values, mode="exact").pvalue)


def plain_holm(ps):
    """Holm (1979), as it is written: the largest of (m - j + 1) p_(j) for j <= k."""
    ordered = sorted(ps)
    m = len(ps)

    def corrected(p):
        k = ordered.index(p)
        return max(min(1, (m - j) * ordered[j]) for j in range(k + 1))

    return [corrected(p) for p in ps]


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm(ps):
    assert holm(ps) == pytest.approx(plain_holm(ps))


def test_holm_passes_over_what_does_not_exist():
    assert holm([None, 0.01, None, 0.02]) == [None, 0.02, None, 0.02]
    assert holm([]) == []


def test_pairs_are_made_by_seed():
    spread, p, ranks = paired({3: 0.5, 1: 0.2, 9: 0.7}, {1: 0.1, 3: 0.3, 4: 0.0})
    assert (spread.n, spread.mean) == (2, pytest.approx(0.15))
    assert p == pytest.approx(stats.ttest_rel([0.2, 0.5], [0.1, 0.3]).pvalue)
    assert ranks is None
    assert paired({1: 0.5}, {2: 0.5}) is None
    assert paired({1: 0.5}, {1: 0.25})[1:] == (None, None)


def test_without_spread_nothing_is_claimed():
    """Equal rows are equal; a shift that is the same on all seeds has no p-value."""
    base = by_seed([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert paired(base, base)[1:] == (1.0, 1.0)
    few = by_seed([0.1, 0.2])
    assert paired(few, few)[1:] == (1.0, None)
    # 0.1 + 0.25 and the like round in their last bits.
    spread, p, _ = paired({k: v + 0.25 for k, v in base.items()}, base)
    assert (spread.sd, p, spread.low) == (0.0, None, None)
    assert spread.mean == pytest.approx(0.25)


def test_rounding_noise_is_no_difference():
    base = by_seed([0.1, 0.2, 0.3])
    noise = {k: v * (1 + 2e-16) for k, v in base.items()}
    assert paired(noise, base)[1] == 1.0
