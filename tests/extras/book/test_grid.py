"""Statistics on a grid: the same integers in any order, and heads as without it."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.extras.book.grid import Grid, GridStatistics
from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.models import CLOSED_FORMS, to_vector

C, D = 3, 4
GRID = Grid.of_steps([2.0**-32], D)


def random_rows(rng, n, dim=D, classes=C, scales=1.0, centre=0.0):
    labels = rng.integers(classes, size=n)
    apart = rng.normal(size=(classes, dim))[labels]
    features = (rng.normal(size=(n, dim)) + apart) * scales + centre
    return torch.tensor(features, dtype=torch.float32), torch.from_numpy(labels)


def of(rows, classes=C, grid=GRID):
    return GridStatistics.of_rows(*rows, classes, grid)


def exact(features, labels, grid):
    """Class sums, and the second moment, in whole numbers of Python."""
    steps = [Fraction(2) ** e for e in grid.exponents]
    rows = [
        [round(Fraction(x) / step) for x, step in zip(row, steps)] for row in features
    ]
    rows = np.array(rows, dtype=object).reshape(-1, D)
    sums = [rows[np.equal(labels, c)].sum(axis=0) for c in range(C)]
    return np.array(sums), rows.T @ rows


exponents = st.lists(st.integers(-36, -20), min_size=D, max_size=D)
sizes = st.integers(0, 12)
seeds = st.integers(0, 2**32 - 1)


@given(seeds, sizes, exponents)
def test_integers_are_those_of_python(seed, n, exponents):
    grid = Grid(tuple(exponents))
    features, labels = random_rows(np.random.default_rng(seed), n, scales=50.0)
    held = of((features, labels), grid=grid)
    sums, second = exact(features.tolist(), labels.tolist(), grid)
    assert held.sums.tolist() == sums.tolist()
    found = [int(h) * 2**60 + int(lo) for h, lo in zip(held.high, held.low)]
    assert found == second[np.triu_indices(D)].tolist()


@given(seeds, st.permutations(range(4)), st.sets(st.integers(0, 3)))
def test_any_order_of_adding_and_removing_gives_the_same_bits(seed, order, gone):
    rng = np.random.default_rng(seed)
    parts = [of(random_rows(rng, n)) for n in rng.integers(0, 9, size=4)]
    total = GridStatistics.empty(C, GRID)
    for k in order:
        total = total + parts[k]
    for k in gone:
        total = total - parts[k]
    left = GridStatistics.empty(C, GRID)
    for k in set(range(4)) - gone:
        left = left + parts[k]
    assert total == left
    assert total.digest(b"salt") == left.digest(b"salt")
    assert (total == left + parts[0]) == (parts[0].counts.sum() == 0)


@given(seeds, st.sampled_from([0.0, 1.0, 1000.0]), st.sampled_from([1.0, 0.01]))
def test_as_floats_they_are_those_of_the_rounded_rows(seed, centre, scale):
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, 30, scales=scale, centre=centre)
    held = of(rows).statistics()
    wanted = Statistics.from_embeddings(GRID.rounded(rows[0]), rows[1], C).to("pooled")
    assert torch.equal(held.counts, wanted.counts)
    torch.testing.assert_close(held.means, wanted.means, rtol=1e-15, atol=1e-15)
    largest = float(wanted.scatter().abs().max())
    gap = (held.scatter() - wanted.scatter()).abs().max()
    assert float(gap) <= 1e-12 * largest


@examples(10)
@given(seeds, st.sampled_from(["ncm", "lda", "ridge"]))
def test_the_grid_hardly_moves_a_head_over_six_orders_of_magnitude(seed, name):
    dim = 7
    scales = 10.0 ** np.linspace(-4, 2, dim)
    rng = np.random.default_rng(seed)
    features, labels = random_rows(rng, 200, dim, scales=scales, centre=scales)
    grid = Grid.of_steps([], dim)
    strength = {"lda": {"shrinkage": 0.01}, "ridge": {"strength": 0.01}, "ncm": {}}
    form = CLOSED_FORMS[name](**strength[name])
    exactly = Statistics.from_embeddings(features, labels, C)
    plain = form.solve(exactly.to("pooled")).model
    held = form.solve(of((features, labels), C, grid).statistics()).model
    before, after = to_vector(plain).double(), to_vector(held).double()
    assert float((before - after).norm() / before.norm()) < 1e-4
    assert torch.equal(plain(features).argmax(1), held(features).argmax(1))


def test_a_step_of_its_own_for_each_dimension():
    grid = Grid.of_steps([2.0**-40, 2.0**10], 2)
    assert grid.exponents == (-40, 10)
    rows = torch.tensor([[1.5 * 2.0**-40, 2.0**11], [-(2.0**-3), 511.0]])
    assert grid.numbers(rows).tolist() == [[2, 2], [-(2**37), 0]]


def test_more_classes_change_no_digest_and_no_scatter():
    held = of(random_rows(np.random.default_rng(1), 20))
    more = held.padded(C + 2)
    assert more.digest(b"a") == held.digest(b"a") != held.digest(b"b")
    assert torch.equal(more.statistics().scatter(), held.statistics().scatter())


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (lambda: Grid.of_steps([0.1], 2), "powers of two"),
        (lambda: Grid.of_steps([0.5, 0.5], 3), "2 steps for 3 dimensions"),
        (lambda: GRID.numbers(torch.tensor([[0.0, 1e5, 0, 0]])), "ggeur.book_steps"),
        (lambda: GRID.numbers(torch.zeros(1, 5)), "rows have 5 dimensions"),
        (lambda: some() - (some() + some()), "remove only rows that were added"),
        (lambda: some() + some().padded(9), "cannot be combined"),
        (lambda: some(lambda s: s * 2**30), "larger steps"),
        (lambda: some(lambda s: s + 1), "no set of rows can have them"),
    ],
)
def test_what_is_refused(broken, words):
    with pytest.raises(StatisticsError, match=words):
        broken()


def some(change=lambda sums: sums):
    one = of((torch.ones(2, D), torch.zeros(2, dtype=torch.int64)))
    return GridStatistics(GRID, one.counts, change(one.sums), one.high, one.low)
