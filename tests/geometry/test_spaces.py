"""Spaces: against plain formulas, and what is transformed against transformed rows."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from solving import stats

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.geometry import SPACES, GeometricShape, Space, Totals

CLASSES = 3


def draw(n=60, dim=5, seed=0, offset=2.0, scale=3.0):
    """Rows of unlike width in the dimensions, and their labels; every class has two."""
    rng = np.random.default_rng(seed)
    widths = scale * np.linspace(0.2, 2.0, dim)
    labels = np.concatenate([np.arange(2 * CLASSES) % CLASSES, rng.integers(0, 3, n)])
    rows = offset + rng.normal(size=(len(labels), dim)) * widths + labels[:, None]
    return torch.from_numpy(rows), torch.from_numpy(labels)


statistics_of = partial(stats, num_classes=CLASSES)


def make(kind, rows):
    if kind == "raw":
        return Space.raw(rows.shape[1])
    return Space.standard(Totals.of_rows(rows))


def plain(rows):
    """The transformed rows, straight from the formula, by numpy."""
    x = rows.numpy()
    return of_length(x - x.sum(axis=0) / len(x))


def of_length(rows):
    """Scaled to a mean square length of 40."""
    return rows * np.sqrt(40 / (rows**2).sum(axis=1).mean())


@given(
    n=st.integers(0, 40),
    dim=st.integers(1, 8),
    seed=st.integers(0, 99),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_rows_are_transformed_as_the_formula_says(n, dim, seed, scale):
    rows, _ = draw(n, dim, seed, scale=scale, offset=scale)
    found = make("standard", rows).features(rows)
    np.testing.assert_allclose(found, plain(rows), atol=1e-10, rtol=1e-10)


@given(
    kind=st.sampled_from(SPACES),
    n=st.integers(0, 60),
    dim=st.integers(1, 30),
    seed=st.integers(0, 99),
)
def test_transformed_statistics_are_those_of_transformed_rows(kind, n, dim, seed):
    rows, labels = draw(n, dim, seed)
    space = make(kind, rows)
    found = space.statistics(statistics_of(rows, labels))
    wanted = statistics_of(space.features(rows), labels)
    assert torch.equal(found.counts, wanted.counts)
    torch.testing.assert_close(found.means, wanted.means, rtol=1e-9, atol=1e-9)
    for c in wanted.classes:
        torch.testing.assert_close(
            found.scatter(c), wanted.scatter(c), rtol=1e-9, atol=1e-9
        )
        here, there = (GeometricShape.from_statistics(s, c) for s in (found, wanted))
        assert here.rank == there.rank
        torch.testing.assert_close(
            here.basis().T @ here.basis(), there.basis().T @ there.basis()
        )


def test_raw_is_the_identity():
    rows, labels = draw()
    space, statistics = Space.raw(rows.shape[1]), statistics_of(rows, labels)
    assert space.features(rows) is rows
    assert space.statistics(statistics) is statistics


@given(factor=st.floats(1e-6, 1e6), shift=st.floats(-1e3, 1e3))
def test_neither_units_nor_origin_matter_to_the_standard_space(factor, shift):
    rows, _ = draw()
    moved = factor * (rows + shift)
    torch.testing.assert_close(
        make("standard", rows).features(rows),
        make("standard", moved).features(moved),
        rtol=1e-7,
        atol=1e-7,
    )


def in_units(orders, n=200, dim=40, seed=0):
    """Rows whose dimensions have units up to so many orders of magnitude apart."""
    rng = np.random.default_rng(seed)
    units = 10 ** np.linspace(0, orders, dim)
    labels = np.arange(n) % CLASSES
    rows = 3 + rng.normal(size=(CLASSES, dim))[labels] + rng.normal(size=(n, dim))
    return torch.from_numpy(rows * units), torch.from_numpy(labels)


def parts_of(rows, labels):
    """The totals of the rows in every way in which a server comes by them."""
    thirds = [(rows[i::3], labels[i::3]) for i in range(3)]
    held = [statistics_of(*third) for third in thirds]
    return {
        "rows": Totals.of_rows(rows),
        "rows of clients": sum(Totals.of_rows(part) for part, _ in thirds),
        "statistics": Totals.of_statistics(sum(held)),
        "statistics of clients": sum(map(Totals.of_statistics, held)),
        "summed statistics": Totals.of_statistics(
            sum(part.to("pooled") for part in held)
        ),
    }


@pytest.mark.parametrize("orders", [3, 6, 12])
def test_dimensions_in_other_units_have_a_scale_each(orders):
    rows, labels = in_units(orders)
    rows = torch.cat([rows, torch.full((len(rows), 1), 7.7).double()], dim=1)
    x = rows.numpy()[:, :-1]
    wanted = of_length((x - x.mean(axis=0)) / x.std(axis=0))
    for way, totals in parts_of(rows, labels).items():
        space = Space.standard(totals)
        assert space.report()["scales"] == "each", way
        found = space.features(rows)
        np.testing.assert_allclose(found[:, :-1], wanted, rtol=1e-6, atol=1e-8)
        assert found[:, -1].abs().max() < 1e-9  # constant
        held = space.statistics(statistics_of(rows, labels))
        again = statistics_of(found, labels)
        torch.testing.assert_close(held.means, again.means, rtol=1e-8, atol=1e-8)
        back = space.inverse_linear(space.linear(rows))
        torch.testing.assert_close(back, rows)


def test_dimensions_that_are_zero_in_all_rows_do_not_vary():
    rows, labels = in_units(3, n=60)
    rows[:, ::4] = 0  # a thin factor leaves rounding in them
    for way, totals in parts_of(rows, labels).items():
        space = Space.standard(totals)
        assert (space.scales[::4] == space.scale).all(), way


def test_dimensions_in_nearly_one_unit_have_one_scale():
    rows, labels = in_units(1)
    for totals in parts_of(rows, labels).values():
        space = Space.standard(totals)
        assert space.report()["scales"] == "one"
        distance = ((rows - rows.mean(dim=0)) ** 2).sum(dim=1).mean() ** 0.5
        assert space.scale == pytest.approx(40**0.5 / float(distance))
        assert space.scales is None


def test_float32_rows_far_from_the_origin_keep_their_differences():
    rows, _ = draw(offset=0.0)
    rows = rows.round(decimals=3).float()
    far = rows + 1024.0
    near = make("standard", (far - 1024.0).double()).features((far - 1024).float())
    found = make("standard", far.double()).features(far)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, near, rtol=1e-5, atol=1e-5)


def test_rows_that_are_all_the_same_keep_their_unit():
    rows = torch.full((6, 3), 0.7).double()
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    for totals in (
        Totals.of_rows(rows),
        Totals.of_statistics(statistics_of(rows, labels)),
        sum(Totals.of_rows(part) for part in rows.split([1, 2, 3])),
    ):
        space = Space.standard(totals)
        assert space.scale == pytest.approx(40**0.5)
        assert space.features(rows).abs().max() < 1e-12


def test_more_rows_than_are_transformed_at_a_time():
    rows, _ = draw(9000, 2)
    space = make("standard", rows)
    torch.testing.assert_close(space.features(rows)[5000:], space.features(rows[5000:]))
    assert space.features(rows[:0]).shape == (0, 2)


def test_no_rows_make_no_space():
    with pytest.raises(StatisticsError, match="no space can be made"):
        Space.standard(Totals.empty(3))
