"""Totals: of rows, of class statistics, and their sum, against plain sums."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federatedscope_ggeur.geometry import Statistics, Totals

CLASSES = 3


def plain(rows):
    """(n, mean, sum (x_d - mean_d)^2 of each dimension d) by loops."""
    n, dim = rows.shape
    mean = [sum(row[d] for row in rows) / n for d in range(dim)]
    return n, mean, [sum((row[d] - mean[d]) ** 2 for row in rows) for d in range(dim)]


def draw(n, dim, seed, offset=0.0):
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(offset + rng.normal(size=(n, dim)))
    return rows, torch.from_numpy(rng.integers(CLASSES, size=n))


def assert_are(totals, rows, tolerance=1e-10):
    n, mean, squares = plain(rows.numpy())
    assert totals.count == n
    np.testing.assert_allclose(totals.mean, mean, rtol=tolerance, atol=tolerance)
    assert totals.spread == pytest.approx(sum(squares), rel=tolerance, abs=tolerance)
    np.testing.assert_allclose(
        totals.squares, squares, rtol=tolerance, atol=tolerance * (1 + sum(squares))
    )


@pytest.mark.slow
@given(n=st.integers(1, 30), dim=st.integers(1, 8), seed=st.integers(0, 99))
@settings(deadline=None)
def test_of_rows_equal_plain_sums(n, dim, seed):
    rows, _ = draw(n, dim, seed)
    assert_are(Totals.of_rows(rows), rows)
    as_float32 = Totals.of_rows(rows.float())
    assert as_float32.mean.dtype == torch.float64
    assert_are(as_float32, rows.float().double())


@pytest.mark.slow
@given(n=st.integers(1, 40), dim=st.integers(1, 8), seed=st.integers(0, 99))
@settings(deadline=None)
def test_of_statistics_are_those_of_the_rows(n, dim, seed):
    rows, labels = draw(n, dim, seed)
    statistics = Statistics.from_embeddings(rows, labels, CLASSES)
    assert_are(Totals.of_statistics(statistics), rows)
    summed = statistics.to("pooled")
    assert_are(Totals.of_statistics(summed), rows)


@pytest.mark.slow
@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    seed=st.integers(0, 99),
    offset=st.sampled_from([0.0, 1e6]),
)
@settings(deadline=None)
def test_the_sum_is_of_all_rows(sizes, seed, offset):
    parts = [draw(n, 4, seed + i, offset)[0] for i, n in enumerate(sizes)]
    total = sum(Totals.of_rows(part) for part in parts)
    rows = torch.cat(parts)
    if len(rows):
        assert_are(total, rows, tolerance=1e-7 if offset else 1e-10)
    else:
        assert (total.count, total.spread) == (0, 0.0)
        assert not total.mean.any()
        assert not total.squares.any()


def test_far_from_the_origin_the_spread_is_kept():
    """``sum |x|^2 / n - |mean|^2`` would have no digit left of it."""
    rows = torch.tensor([[1e9, -1e9], [1e9 + 2, -1e9]], dtype=torch.float64)
    assert Totals.of_rows(rows).spread == 2.0
    labels = torch.tensor([0, 0])
    statistics = Statistics.from_embeddings(rows, labels, 1)
    assert Totals.of_statistics(statistics).spread == pytest.approx(2.0)
    halves = Totals.of_rows(rows[:1]) + Totals.of_rows(rows[1:])
    assert halves.spread == 2.0


def test_of_no_rows_they_are_zero():
    empty = Totals.empty(3)
    none = Statistics.empty(CLASSES, 3)
    for totals in (Totals.of_rows(torch.zeros(0, 3)), Totals.of_statistics(none)):
        assert (totals.count, totals.spread) == (0, 0.0)
        assert torch.equal(totals.mean, empty.mean)
        assert torch.equal(totals.squares, empty.squares)
