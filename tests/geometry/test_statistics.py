"""Class statistics: the exact merge, the algebra, and the edges."""

from functools import partial

import geometry_oracle as oracle
import numpy as np
import pytest
import solving
import torch
from examples import examples
from geometry_oracle import merge_at_random
from hypothesis import given
from hypothesis import strategies as st

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.geometry import Statistics, Totals

NUM_CLASSES = 3


stats = partial(solving.stats, num_classes=NUM_CLASSES)


def random_data(rng, n, dim, num_classes=NUM_CLASSES):
    return rng.normal(size=(n, dim)), rng.integers(num_classes, size=n)


def in_float32(statistics):
    """What is left of statistics whose scatters have travelled in float32."""
    counts, means = statistics.counts, statistics.means
    if statistics.content == "pooled":
        if statistics.factor_is_smaller():
            factor = statistics.factor().float()
            return Statistics.of_pooled(counts, means, factor=factor)
        scatter = statistics.scatter().float()
        return Statistics.of_pooled(counts, means, scatter=scatter)
    factors, covariances = {}, {}
    for c in statistics.classes:
        if statistics.factor_is_smaller(c):
            factors[c] = statistics.factor(c).float()
        else:
            covariances[c] = statistics.covariance(c).float()
    return Statistics.from_moments(counts, means, factors, covariances)


def beside(held, wanted):
    """Each scatter that is held, its factor, and what is wanted of it."""
    if held.content == "class":
        return [(held.scatter(c), held.factor(c), wanted[c]) for c in held.classes]
    return [(held.scatter(), held.factor(), sum(wanted.values()))]


@st.composite
def clients(draw):
    """Rows and labels of each client, some without data, and a generator.

    The cloud, up to a million of its widths from the origin, may be flat in some
    directions, have clients apart from each other, repeat rows, or be one point.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dim = draw(st.integers(1, 5))
    sizes = draw(st.lists(st.integers(0, 8), min_size=1, max_size=50))
    widths = 10.0 ** np.array(draw(st.lists(st.integers(-6, 0), min_size=dim)))[:dim]
    widths[rng.integers(dim)] = 1.0
    apart = draw(st.sampled_from([0.0, 1e-3, 1.0]))
    offset = 10.0 ** draw(st.floats(-2, 6)) * rng.normal(size=dim)
    unit = draw(st.sampled_from([1e-8, 1.0, 1e5]))
    if draw(st.integers(0, 9)) == 0:
        widths, apart = widths * 0, 0.0
    data = []
    for n in sizes:
        rows = widths * (rng.normal(size=(n, dim)) + apart * rng.normal(size=dim))
        if n and draw(st.booleans()):
            rows = rows[rng.integers(n, size=n)]
        data.append((unit * (rows + offset), rng.integers(NUM_CLASSES, size=n)))
    return data, rng


def check_merge(merged, data, tolerance):
    """The Frobenius error of each scatter is at most `tolerance` of it.

    So it is zero where the pooled scatter is, and how far the data lie from the origin
    does not matter.
    """
    wanted = {}
    for c in range(NUM_CLASSES):
        rows = np.concatenate([rows[labels == c] for rows, labels in data])
        assert merged.counts[c] == len(rows)
        assert (c in merged.classes) == (len(rows) > 0)
        if len(rows):
            wanted[c] = len(rows) * oracle.exact_moments(rows)[1]
    for found, _, scatter in beside(merged, wanted):
        error = np.linalg.norm(found.numpy() - scatter)
        assert error <= tolerance * np.linalg.norm(scatter)


@pytest.mark.parametrize(
    ("travelled", "tolerance"), [(lambda part: part, 1e-12), (in_float32, 1e-6)]
)
@pytest.mark.parametrize("content", ["class", "pooled"])
@given(clients())
def test_merge_equals_pooled_data(travelled, tolerance, content, drawn):
    data, rng = drawn
    parts = [travelled(stats(rows, labels).to(content)) for rows, labels in data]
    for merged in (merge_at_random(parts, rng), sum(parts)):
        check_merge(merged, data, tolerance)


@given(
    st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=4),
    st.lists(st.integers(0, 6), min_size=1, max_size=50).filter(any),
)
@examples(50)
def test_constant_data_have_a_covariance_of_exactly_zero(point, sizes):
    parts = [stats(np.tile(point, (n, 1)), [1] * n) for n in sizes]
    merged = merge_at_random(parts, np.random.default_rng(len(sizes)))
    assert merged.classes == [1]
    assert not merged.covariance(1).any()
    assert merged.means[1].tolist() == point


@pytest.mark.parametrize("content", ["class", "pooled"])
@pytest.mark.parametrize(("n", "dim"), [(60, 3), (9, 40), (1, 4), (2, 4), (0, 4)])
def test_statistics_and_merge_equal_the_plain_oracle(n, dim, content):
    rng = np.random.default_rng(n)
    data = [random_data(rng, n, dim) for _ in range(4)]
    parts = [stats(rows, labels).to(content) for rows, labels in data]
    plain = [
        [oracle.class_moments(rows, labels, c) for c in range(NUM_CLASSES)]
        for rows, labels in data
    ]
    merged = [oracle.merge(of_class) for of_class in zip(*plain)]
    for fast, moments in zip([*parts, sum(parts)], [*plain, merged]):
        assert fast.counts.tolist() == [count for count, _, _ in moments]
        assert fast.classes == [c for c, (n, _, _) in enumerate(moments) if n]
        np.testing.assert_allclose(fast.means, [m for _, m, _ in moments], atol=1e-14)
        wanted = {c: count * sigma for c, (count, _, sigma) in enumerate(moments)}
        for scatter, factor, within in beside(fast, wanted):
            np.testing.assert_allclose(scatter, within, atol=1e-11)
            np.testing.assert_allclose(factor.T @ factor, within, atol=1e-11)
        for c in fast.classes if content == "class" else ():
            np.testing.assert_allclose(fast.covariance(c), moments[c][2], atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "offset"), [(6, 0.0), (6, 1e8), (40, 0.0)])
def test_a_thousand_additions_and_removals(dim, offset):
    rng = np.random.default_rng(dim)
    held, now = [], Statistics.empty(NUM_CLASSES, dim)
    largest, farthest, times_emptied = [0.0] * NUM_CLASSES, 0.0, 0
    for step in range(1000):
        growing = step % 200 < 100  # every hundred steps all but nothing is left
        if not held or rng.random() < (0.7 if growing else 0.25):
            rows, labels = random_data(rng, int(rng.integers(0, 9)), dim)
            rows = offset + 10.0 ** rng.integers(-2, 3) * rows
            held.append((rows, labels))
            now = now + stats(rows, labels)
        else:
            now = now - stats(*held.pop(rng.integers(len(held))))
        rows = np.concatenate([np.zeros((0, dim)), *(rows for rows, _ in held)])
        labels = np.concatenate([[], *(labels for _, labels in held)])
        for c in range(NUM_CLASSES):
            members = rows[labels == c]
            assert now.counts[c] == len(members)
            if len(members) == 0:
                times_emptied += 1
                assert c not in now.classes
                assert not now.means[c].any()
                continue
            mean = offset + (members - offset).mean(axis=0)
            scatter = (members - mean).T @ (members - mean)
            largest[c] = max(largest[c], np.linalg.norm(scatter))
            farthest = max(farthest, np.abs(members).max())
            error = np.linalg.norm(now.scatter(c).numpy() - scatter)
            assert error <= 1e-9 * largest[c]
            assert np.abs(now.means[c].numpy() - mean).max() <= 1e-9 * farthest
    assert times_emptied > 50


@pytest.mark.parametrize("content", ["class", "pooled"])
def test_one_sample_of_each_class_that_is_left_has_no_scatter(content):
    rows, _ = random_data(np.random.default_rng(0), 60, 6)
    labels = np.arange(60) % NUM_CLASSES
    whole, rest = (stats(rows[k:], labels[k:]).to(content) for k in (0, NUM_CLASSES))
    left = whole - rest
    assert left.counts.tolist() == [1] * NUM_CLASSES
    for scatter, factor, _ in beside(left, dict.fromkeys(left.classes, 0)):
        assert not scatter.any()
        assert factor.shape == (0, 6)
    np.testing.assert_allclose(left.means, rows[:NUM_CLASSES], atol=1e-12)


def test_a_class_that_was_emptied_comes_back():
    rng = np.random.default_rng(3)
    rows, labels = random_data(rng, 12, 3)
    one, other = stats(rows, labels), stats(rows + 1e6, labels)
    gone = (one + other) - one - other
    assert gone.classes == []
    assert not gone.means.any()
    for ask in (gone.covariance, gone.factor):
        with pytest.raises(StatisticsError, match="class 0 has no samples"):
            ask(0)
    back = gone + one
    for c in one.classes:
        assert torch.equal(back.covariance(c), one.covariance(c))
        assert torch.equal(back.means[c], one.means[c])


@pytest.mark.parametrize("content", ["class", "pooled"])
def test_nobody_and_one_client_alone_change_no_bit(content):
    rows = np.random.default_rng(5).normal(size=(20, 3))
    one = stats(rows, [0] * 15 + [2] * 5).to(content)
    nobody = Statistics.empty(NUM_CLASSES, 3, content)
    assert nobody.classes == []
    for same in (sum([one]), one + nobody, nobody + one, one - nobody):
        assert same.classes == [0, 2]
        assert torch.equal(same.means, one.means)
        found, wanted = (beside(held, {0: 0, 2: 0}) for held in (same, one))
        assert all(torch.equal(a, b) for (a, *_), (b, *_) in zip(found, wanted))


def test_classes_are_matched_as_numbers():
    rows = np.array([[1.0], [3.0], [10.0], [30.0], [100.0], [300.0]])
    a = stats(rows, [1, 1, 10, 10, 100, 100], num_classes=101)
    b = stats(rows[2:], [10, 10, 100, 100], num_classes=101)
    merged = a + b
    assert merged.classes == [1, 10, 100]
    assert [merged.means[c].item() for c in (1, 10, 100)] == [2, 20, 200]
    assert [merged.counts[c].item() for c in (1, 10, 100)] == [2, 4, 4]
    variances = [merged.covariance(c).item() for c in (1, 10, 100)]
    assert variances == pytest.approx([1, 100, 10000])
    left = merged.restrict([1, 100, 7])
    assert left.classes == [1, 100]
    assert left.means[10].item() == 0
    assert left.covariance(100).item() == variances[2]
    assert merged.classes == [1, 10, 100]
    with pytest.raises(StatisticsError, match="class 10 has no samples"):
        left.covariance(10)
    with pytest.raises(StatisticsError, match="101 is out of range"):
        left.covariance(101)


# Class statistics refuse what they cannot use, by name.


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("features", "labels", "problem"),
    [
        ([[0.0], [NAN]], [0, 1], "NaN or infinity, first in row 1"),
        ([[INF], [0.0]], [0, 1], "NaN or infinity, first in row 0"),
        ([[0.0], [1.0]], [0, 3], r"label 3 in row 1 is out of range 0\.\.2"),
        ([[0.0], [1.0]], [-1, 0], "label -1 in row 0"),
        ([[0.0], [1.0]], [0], "2 rows of features have 1 label"),
        ([0.0, 1.0], [0, 1], r"\(n, D\).*shape \(2,\)"),
        ([[], []], [0, 1], r"shape \(2, 0\)"),
        ([[0], [1]], [0, 1], "features must be a floating-point array.*int64"),
        ([[0.0], [1.0]], [[0], [1]], r"labels must be .* shape \(2, 1\)"),
        ([[0.0], [1.0]], [0.0, 1.0], "labels must be an integer array.*float32"),
    ],
)
def test_bad_embeddings_are_refused(features, labels, problem):
    features, labels = torch.tensor(features), torch.tensor(labels)
    with pytest.raises(StatisticsError, match=problem):
        Statistics.from_embeddings(features, labels, NUM_CLASSES)


def test_what_does_not_fit_is_refused():
    a = stats(torch.ones(3, 2), [0, 0, 1])
    for other in (Statistics.empty(3, 5), Statistics.empty(4, 2)):
        for operation in (lambda x, y: x + y, lambda x, y: x - y):
            with pytest.raises(StatisticsError, match="do not fit"):
                operation(a, other)
    with pytest.raises(StatisticsError, match="remove 2 samples of class 1 from 1"):
        a - stats(torch.ones(2, 2), [1, 1])
    with pytest.raises(StatisticsError, match=r"\[1\] have samples without a cov"):
        Statistics.from_moments(a.counts, a.means, {0: torch.zeros(0, 2)})
    with pytest.raises(TypeError):
        a + 1


# Totals: of rows, of class statistics, and their sum, against plain sums.


def draw(n, dim, seed, offset=0.0):
    rows, labels = random_data(np.random.default_rng(seed), n, dim)
    return torch.from_numpy(offset + rows), torch.from_numpy(labels)


def assert_are(totals, rows, tolerance=1e-10):
    n, mean, sigma = oracle.class_moments(rows.numpy(), [0] * len(rows), 0)
    squares = n * sigma.diagonal()
    assert totals.count == n
    np.testing.assert_allclose(totals.mean, mean, rtol=tolerance, atol=tolerance)
    assert totals.spread == pytest.approx(sum(squares), rel=tolerance, abs=tolerance)
    np.testing.assert_allclose(
        totals.squares, squares, rtol=tolerance, atol=tolerance * (1 + sum(squares))
    )


@given(n=st.integers(1, 30), dim=st.integers(1, 8), seed=st.integers(0, 99))
def test_of_rows_equal_plain_sums(n, dim, seed):
    rows, _ = draw(n, dim, seed)
    assert_are(Totals.of_rows(rows), rows)
    as_float32 = Totals.of_rows(rows.float())
    assert as_float32.mean.dtype == torch.float64
    assert_are(as_float32, rows.float().double())


@given(n=st.integers(1, 40), dim=st.integers(1, 8), seed=st.integers(0, 99))
def test_of_statistics_are_those_of_the_rows(n, dim, seed):
    rows, labels = draw(n, dim, seed)
    for content in ("class", "pooled"):
        assert_are(Totals.of_statistics(stats(rows, labels).to(content)), rows)


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    seed=st.integers(0, 99),
    offset=st.sampled_from([0.0, 1e6]),
)
def test_the_sum_is_of_all_rows(sizes, seed, offset):
    parts = [draw(n, 4, seed + i, offset)[0] for i, n in enumerate(sizes)]
    total = sum(Totals.of_rows(part) for part in parts)
    assert_are(total, torch.cat(parts), tolerance=1e-7 if offset else 1e-10)


def test_far_from_the_origin_the_spread_is_kept():
    """``sum |x|^2 / n - |mean|^2`` would have no digit left of it."""
    rows = torch.tensor([[1e9, -1e9], [1e9 + 2, -1e9]], dtype=torch.float64)
    assert Totals.of_rows(rows).spread == 2.0
    assert Totals.of_statistics(stats(rows, [0, 0])).spread == pytest.approx(2.0)
    halves = Totals.of_rows(rows[:1]) + Totals.of_rows(rows[1:])
    assert halves.spread == 2.0


def test_of_no_rows_they_are_zero():
    nothing = torch.zeros(0, 3).double()
    none = Totals.of_statistics(Statistics.empty(NUM_CLASSES, 3))
    for totals in (Totals.empty(3), Totals.of_rows(nothing), none):
        assert_are(totals, nothing, tolerance=0)
