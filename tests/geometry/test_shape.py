"""Shapes: against the plain oracle, by covariance and by factors; their similarity."""

import geometry_oracle as oracle
import numpy as np
import pytest
import torch
from solving import stats

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.geometry import GeometricShape, Statistics, shape_similarity


def random_rows(n, dim, rank=None, seed=0):
    rng = np.random.default_rng([n, dim, seed])
    rank = min(n, dim) if rank is None else rank
    return rng.normal(size=(n, rank)) @ rng.normal(size=(rank, dim))


def shape_along(*directions, dim=6):
    """A shape whose directions are these, in this order of eigenvalues."""
    covariance = torch.zeros(dim, dim).double()
    for i, direction in enumerate(directions):
        covariance[direction, direction] = 10.0 - i
    return GeometricShape.from_covariance(covariance)


def assert_shape_of(shape, covariance, atol=1e-10):
    """Equal to the oracle's decomposition up to signs, and orthonormal."""
    values, vectors = oracle.shape(covariance)
    rank = shape.rank
    np.testing.assert_allclose(shape.eigenvalues, values[:rank], atol=atol)
    np.testing.assert_allclose(values[rank:], 0, atol=atol)
    basis = shape.eigenvectors.numpy()
    np.testing.assert_allclose(basis.T @ basis, np.eye(rank), atol=1e-12)
    rebuilt = basis @ np.diag(shape.eigenvalues.numpy()) @ basis.T
    np.testing.assert_allclose(rebuilt, covariance, atol=atol)
    top = min(rank, 3)
    for i in range(top):  # projectors on single directions do not know signs
        ours = np.outer(basis[:, i], basis[:, i])
        theirs = np.outer(vectors[:, i], vectors[:, i])
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


@pytest.mark.parametrize(("n", "dim"), [(50, 4), (9, 12), (40, 12)])
def test_the_pooled_shape_is_of_all_rows_less_their_class_means(n, dim):
    rows, labels = random_rows(n, dim), np.arange(n) % 3
    plain = [oracle.class_moments(rows, labels, c) for c in range(3)]
    within = sum(count * sigma for count, _, sigma in plain) / n
    statistics = stats(rows, labels, 4).to("pooled")
    assert_shape_of(GeometricShape.pooled(statistics), within)


@pytest.mark.parametrize(
    ("n", "dim", "rank"),
    [(50, 4, 4), (5, 12, 4), (30, 12, 2), (8, 12, 3), (2, 3, 1), (7, 1, 1)],
)
def test_both_ways_equal_the_plain_oracle(n, dim, rank):
    for seed in range(10):
        rows = random_rows(n, dim, rank, seed)
        labels = np.zeros(n, dtype=np.int64)
        _, _, sigma = oracle.class_moments(rows, labels, 0)
        centred = torch.from_numpy(rows - rows.mean(axis=0))
        shapes = [
            GeometricShape.from_covariance(torch.from_numpy(sigma)),
            GeometricShape.from_factors(centred.split(2), n),
        ]
        parts = torch.from_numpy(rows).split(3)
        statistics = sum(stats(part, [0] * len(part), 1) for part in parts)
        shapes.append(GeometricShape.from_statistics(statistics, 0))
        for shape in shapes:
            assert_shape_of(shape, sigma)
            assert shape.dim == dim
            assert torch.all(shape.eigenvalues > 0)
            assert shape.eigenvectors.shape == (dim, shape.rank)


def test_eigenvectors_have_length_one_where_rows_are_all_but_dependent():
    # The smaller eigenvalue is known to a tenth of itself at best: it stands just
    # above what is clipped as rounding noise.
    dim, found = 3, 0
    small = (2 * dim * torch.finfo(torch.float64).eps) ** 0.5
    for seed in range(50):
        generator = torch.Generator().manual_seed(seed)
        u, _ = torch.linalg.qr(torch.randn(2, 2, generator=generator).double())
        v, _ = torch.linalg.qr(torch.randn(dim, 2, generator=generator).double())
        rows = u @ torch.tensor([1.0, small]).double().diag() @ v.T
        shape = GeometricShape.from_factors([rows], 10)
        gram = shape.eigenvectors.T @ shape.eigenvectors
        identity = torch.eye(shape.rank).double()
        torch.testing.assert_close(gram, identity, rtol=0, atol=1e-12)
        found += shape.rank == 2
    assert found > 25


def test_noise_below_zero_and_beside_the_largest_is_clipped():
    values = torch.tensor([3.0, 1e-17, -1e-16, 2.0]).double()
    shape = GeometricShape.from_covariance(values.diag())
    assert shape.eigenvalues.tolist() == [3.0, 2.0]
    small = GeometricShape.from_covariance(1e-20 * values.diag())
    assert small.rank == 2


def test_a_constant_class_has_rank_zero():
    shapes = [
        GeometricShape.from_covariance(torch.zeros(4, 4)),
        GeometricShape.from_factors([torch.zeros(0, 4), torch.zeros(2, 4)], 3),
        GeometricShape.from_factors([torch.zeros(0, 4)], 1),
    ]
    for shape in shapes:
        assert (shape.dim, shape.rank) == (4, 0)
        assert shape.basis().shape == (0, 4)
        assert shape_similarity(shape, shape) == 0


def test_basis_scales():
    rows = random_rows(40, 5)
    sigma = torch.from_numpy(np.cov(rows.T, ddof=0))
    shape = GeometricShape.from_covariance(sigma)
    by_covariance, by_eigenvalue = shape.basis("covariance"), shape.basis("eigenvalue")
    torch.testing.assert_close(by_covariance.T @ by_covariance, sigma)
    torch.testing.assert_close(by_eigenvalue.T @ by_eigenvalue, sigma @ sigma)
    assert torch.equal(shape.basis(), by_covariance)
    with pytest.raises(ValueError, match="'variance'"):
        shape.basis("variance")


def test_similarity_is_of_the_top_five_directions_in_their_order():
    full = shape_along(*range(6))
    assert shape_similarity(full, full) == pytest.approx(5)
    # The same plane, but the directions in the other order.
    assert shape_similarity(shape_along(0, 1), shape_along(1, 0)) == 0


@pytest.mark.parametrize("top", [1, 5, 20])
def test_similarity_equals_the_plain_oracle_and_is_symmetric(top):
    shapes = []
    for seed, rank in enumerate([2, 4, 8, 8]):
        rows = random_rows(30, 8, rank, seed)
        shapes.append(GeometricShape.from_covariance(torch.from_numpy(rows.T @ rows)))
    for a in shapes:
        for b in shapes:
            value = shape_similarity(a, b, top)
            expected = oracle.similarity(
                a.eigenvectors.numpy(), b.eigenvectors.numpy(), top
            )
            assert value == pytest.approx(expected)
            assert value == pytest.approx(shape_similarity(b, a, top))
            assert 0 <= value <= min(top, a.rank, b.rank) + 1e-9


def test_what_does_not_fit_is_refused():
    with pytest.raises(StatisticsError, match=r"square, got shape \(2, 3\)"):
        GeometricShape.from_covariance(torch.zeros(2, 3))
    with pytest.raises(StatisticsError, match="6 and 4 dimensions"):
        shape_similarity(shape_along(0), shape_along(0, dim=4))
    with pytest.raises(StatisticsError, match="no samples"):
        GeometricShape.pooled(Statistics.empty(2, 3, "pooled"))


@pytest.mark.parametrize(("n", "dim"), [(40, 64), (80, 100)])
def test_a_resolution_clips_what_rounding_to_float32_left(n, dim):
    rows = torch.randn(n, dim, generator=torch.Generator().manual_seed(n)).double()
    statistics = stats(rows, [0] * n, 1)
    rounded = statistics.covariance(0).float().double()
    sent = Statistics.from_moments(
        statistics.counts, statistics.means, covariances={0: rounded}
    )
    assert GeometricShape.from_statistics(sent, 0).rank > n - 1
    resolution = 4 * torch.finfo(torch.float32).eps
    assert GeometricShape.from_statistics(sent, 0, resolution).rank == n - 1
