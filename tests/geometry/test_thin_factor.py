"""The thin factor is a function of the scatter, and never hands over the rows."""

import numpy as np
import pytest
import torch
from solving import stats

from federatedscope_ggeur.geometry import thin_factor


def generic(rng, n, dim):
    return rng.normal(size=(n, dim)) * rng.uniform(0.5, 2, size=dim)


def dead_leading(rng, n, dim):
    rows = generic(rng, n, dim)
    rows[:, : dim - n] = 0  # as many live columns as rows
    return rows


def dead_scattered(rng, n, dim):
    rows = generic(rng, n, dim)
    rows[:, ::3] = 0
    return rows


def dependent_columns(rng, n, dim):
    return generic(rng, n, 2) @ rng.normal(size=(2, dim))


def mirrored_columns(rng, n, dim):
    rows = generic(rng, n, dim)
    rows[:, 1] = -rows[:, 0]
    rows[:, 2:] *= 0.1
    return rows


def dependent_rows(rng, n, dim):
    rows = generic(rng, n, dim)
    rows[n // 2 :] = rows[: n - n // 2]
    return rows


def rank_zero(rng, n, dim):
    return np.zeros((n, dim))


def equal_lengths(rng, n, dim):
    rows = np.zeros((n, dim))  # +-e_i: all singular values are equal, or nearly
    rows[np.arange(n), np.arange(n) % dim] = np.where(np.arange(n) // dim % 2, -1, 1)
    return rows


def centred_one_hot(rng, n, dim):
    rows = equal_lengths(rng, n, dim)
    return rows - rows.mean(axis=0)


KINDS = [
    generic,
    equal_lengths,
    centred_one_hot,
    dead_leading,
    dead_scattered,
    dependent_columns,
    mirrored_columns,
    dependent_rows,
    rank_zero,
]
SIZES = [(1, 6), (2, 6), (4, 9), (9, 4), (30, 5), (5, 40)]


def make(kind, n, dim, seed=0):
    return torch.from_numpy(kind(np.random.default_rng([n, dim, seed]), n, dim))


def random_orthogonal(n, seed=0):
    gaussian = np.random.default_rng([n, seed]).normal(size=(n, n))
    return torch.from_numpy(np.linalg.qr(gaussian)[0])


def assert_canonical(factor, scatter):
    """F^T F is the scatter, rows are orthogonal, descending, of canonical sign."""
    scale = max(float(scatter.abs().max()), 1e-300)
    torch.testing.assert_close(factor.T @ factor, scatter, rtol=0, atol=1e-13 * scale)
    gram = factor @ factor.T
    assert (gram - gram.diag().diag()).abs().le(1e-13 * scale).all()
    lengths = gram.diag()
    assert (lengths > 0).all()
    assert (lengths[:-1] >= (1 - 1e-8) * lengths[1:]).all()
    for row in factor:
        first = torch.nonzero(row.abs() >= 0.99 * row.abs().max())[0]
        assert row[first] > 0


def hands_over_a_row(factor, rows):
    """Whether a row of the factor equals a row of the data, up to sign."""
    return any(
        torch.allclose(sign * f, z, rtol=1e-6, atol=1e-9)
        for f in factor
        for z in rows
        for sign in (1, -1)
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "dim"), SIZES)
def test_a_function_of_the_scatter_alone(kind, n, dim):
    for seed in range(4):
        rows = make(kind, n, dim, seed)
        factor = thin_factor(rows)
        assert_canonical(factor, rows.T @ rows)
        turned = thin_factor(random_orthogonal(n, seed) @ rows)
        assert turned.shape == factor.shape
        torch.testing.assert_close(turned, factor, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("n", "dim"), SIZES)
def test_its_rank_is_that_of_the_rows(n, dim):
    expected = {generic: min(n, dim), dependent_columns: min(n, 2), rank_zero: 0}
    for kind, rank in expected.items():
        assert thin_factor(make(kind, n, dim)).shape == (rank, dim)
    assert thin_factor(torch.zeros(0, dim).double()).shape == (0, dim)


@pytest.mark.parametrize(("n", "dim"), [(2, 6), (4, 9), (5, 40)])
def test_never_the_rows_where_a_qr_factor_hands_them_over(n, dim):
    rows = make(dead_leading, n, dim)
    assert not hands_over_a_row(thin_factor(rows), rows)
    # What the check is there to catch: R of a QR of rows with dead leading columns.
    qr_factor = torch.linalg.qr(rows)[1]
    torch.testing.assert_close(qr_factor.T @ qr_factor, rows.T @ rows)
    assert hands_over_a_row(qr_factor, rows)


def of_class_zero(rows):
    return stats(rows, [0] * len(rows), 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "dim"), [(4, 9), (9, 4), (30, 5), (12, 40), (30, 40)])
def test_factor_of_merged_statistics(kind, n, dim):
    rows = make(kind, n, dim)
    centred = rows - rows.mean(dim=0)
    parts = [of_class_zero(part) for part in rows.split(3)]
    merged = sum(parts)
    ways = [of_class_zero(rows), merged, sum(reversed(parts)), merged + merged - merged]
    expected = thin_factor(centred)
    for way in ways:
        factor = way.factor(0)
        assert_canonical(factor, way.scatter(0))
        # A dense scatter knows lengths to the root of rounding only, so those that
        # are rounding noise may appear.
        noise = factor[len(expected) :]
        assert (noise.norm(dim=1) < 1e-6).all()
        torch.testing.assert_close(
            factor[: len(expected)], expected, rtol=1e-8, atol=1e-8
        )
    assert ways[0].factor(0).shape[0] <= n - 1


@pytest.mark.parametrize(("n", "dim"), [(3, 6), (6, 12), (11, 20)])
def test_factor_of_statistics_never_holds_the_centred_rows(n, dim):
    rows = make(dead_leading, n, dim)
    centred = rows - rows.mean(dim=0)
    both = of_class_zero(rows)
    assert both.factor_is_smaller(0)
    merged = of_class_zero(rows[:2]) + of_class_zero(rows[2:])
    for statistics in (both, merged):
        for factor in (statistics.factor(0), statistics.to("pooled").factor()):
            assert not hands_over_a_row(factor, centred)
            assert not hands_over_a_row(factor, rows)


@pytest.mark.parametrize("dim", [1, 2, 7, 12])
def test_the_smaller_of_factor_and_triangle_is_held(dim):
    for n in range(1, 2 * dim + 2):
        statistics = of_class_zero(make(generic, n, dim))
        factor_size = (n - 1) * dim
        triangle_size = dim * (dim + 1) // 2
        assert statistics.factor_is_smaller(0) == (factor_size <= triangle_size)
        rows = statistics.stacked_rows(0)
        if statistics.factor_is_smaller(0):
            torch.testing.assert_close(rows.T @ rows, statistics.scatter(0))
        else:
            assert rows is None
