"""Rows with weights: a row of weight 2 counts as two rows, but as one in counts."""

from functools import partial

import geometry_oracle as oracle
import numpy as np
import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from solving import stats

from federatedscope_ggeur.geometry import Totals

CLASSES = 3


statistics = partial(stats, num_classes=CLASSES)


@st.composite
def weighted(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, dim = draw(st.integers(1, 30)), draw(st.integers(1, 6))
    rows = rng.normal(size=(n, dim)) + draw(st.sampled_from([0.0, 100.0]))
    weights = 10.0 ** rng.uniform(-1, 1, size=n)
    return rows, rng.integers(CLASSES, size=n), weights, rng.integers(3, size=n)


def check(found, rows, labels, weights):
    assert found.counts.tolist() == np.bincount(labels, minlength=CLASSES).tolist()
    for c in found.classes:
        total, mean, sigma = oracle.class_moments(rows, labels, c, weights)
        scatter = total * sigma
        size = np.trace(scatter) + 1e-9 * total * (mean @ mean + 1)
        assert float(found.weights[c]) == pytest.approx(total, rel=1e-10)
        np.testing.assert_allclose(found.means[c], mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.scatter(c), scatter, rtol=0, atol=1e-7 * size)
        np.testing.assert_allclose(found.covariance(c) * total, found.scatter(c))


@examples(40)
@given(weighted())
def test_merged_parts_equal_the_formulas_and_can_be_removed(data):
    rows, labels, weights, holder = data
    parts = [
        statistics(rows[holder == k], labels[holder == k], weights=weights[holder == k])
        for k in range(3)
    ]
    merged = parts[2] + parts[0] + parts[1]
    check(merged, rows, labels, weights)
    kept = holder != 1
    check(merged - parts[1], rows[kept], labels[kept], weights[kept])
    bare = statistics(rows[~kept], labels[~kept])
    check(parts[2] + bare + parts[0] - bare, rows[kept], labels[kept], weights[kept])


@examples(20)
@given(weighted(), st.integers(0, 2**32))
def test_whole_weights_repeat_rows(data, seed):
    rows, labels, _, _ = data
    times = np.random.default_rng(seed).integers(1, 4, size=len(rows))
    found = statistics(rows, labels, weights=times).to("pooled")
    repeated = statistics(rows.repeat(times, 0), labels.repeat(times)).to("pooled")
    assert found.weights.tolist() == repeated.counts.tolist()
    np.testing.assert_allclose(found.means, repeated.means, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.scatter(), repeated.scatter(), atol=1e-9)
    of_both = [Totals.of_statistics(one).spread for one in (found, repeated)]
    assert of_both[0] == pytest.approx(of_both[1], abs=1e-7)


def test_weights_of_one_change_no_bit_and_parts_of_statistics_keep_weights():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(9, 4)), np.arange(9) % CLASSES
    found, plainly = (statistics(rows, labels, weights=w) for w in (np.ones(9), None))
    assert (found.is_weighted, plainly.is_weighted) == (True, False)
    assert torch.equal(found.means, plainly.means)
    assert torch.equal(found.scatter(), plainly.scatter())
    found = statistics(rows, labels, weights=np.full(9, 2.5))
    parts = [found.to("means"), found.with_means(found.means), found.restrict([1])]
    parts.append(found.mapped(torch.zeros(4).double(), lambda rows: 2 * rows))
    for part in parts:
        assert float(part.weights[1]) == 7.5
    assert parts[2].weights.tolist() == [0, 7.5, 0]
