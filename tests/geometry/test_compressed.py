"""Statistics in few bytes: a plain oracle, what stays, and what bounds the rest."""

import geometry_oracle as oracle
import numpy as np
import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from solving import stats

from federatedscope_ggeur.geometry import (
    ROW_DTYPES,
    CompressedStatistics,
    Compression,
    RoundedRows,
    Statistics,
)

CLASSES = 4
HOWS = st.builds(
    Compression,
    rank=st.one_of(st.none(), st.integers(0, 12)),
    energy=st.sampled_from([1.0, 0.9, 0.5]),
    dtype=st.sampled_from(["float32", "float16", "int8"]),
)


def make_rows(seed, n, dim, scale=1.0, offset=0.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=n)
    centres = rng.normal(size=(CLASSES, dim))
    noise = rng.normal(size=(n, dim)) * np.geomspace(2, 0.05, dim)
    return scale * (offset + centres[labels] + noise), labels


def make(seed, n, dim, scale=1.0, offset=0.0):
    rows, labels = make_rows(seed, n, dim, scale, offset)
    return stats(rows, labels, CLASSES).to("pooled")


PARTS = st.builds(
    make,
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 5, 12, 60]),
    st.sampled_from([1, 3, 10, 24]),
    st.sampled_from([1e-20, 1.0, 1e6]),
    st.sampled_from([0.0, 30.0]),
)


def restored(statistics, how):
    return CompressedStatistics.of(statistics, how).restore()


def plain_restored(rows, labels, rank):
    """W' of the docstring, from the rows, by eigenvectors one at a time."""
    parts = [oracle.class_moments(rows, labels, c) for c in range(CLASSES)]
    within = sum(count * sigma for count, _, sigma in parts)
    values, vectors = oracle.shape(within)
    dim, rest = len(within), sum(values[rank:])
    even = rest / (dim - rank)
    found = even * np.eye(dim)
    for value, vector in zip(values[:rank], vectors.T):
        found += (value - even) * np.outer(vector, vector)
    return within, found


@pytest.mark.parametrize(("n", "dim"), [(80, 6), (12, 30)])
@pytest.mark.parametrize("rank", [0, 1, 4])
def test_what_is_restored_equals_the_plain_oracle(n, dim, rank):
    rows, labels = make_rows(n, n, dim)
    within, wanted = plain_restored(rows, labels, rank)
    held = CompressedStatistics.of(make(n, n, dim), Compression(rank))
    size = np.linalg.norm(within)
    np.testing.assert_allclose(held.restore().scatter(), wanted, atol=1e-6 * size)
    values = oracle.shape(within)[0]
    assert held.left_out == pytest.approx(sum(values[rank:]))


@given(PARTS)
def test_all_directions_in_float32_are_exact_to_rounding(held):
    found = restored(held, Compression())
    size = float(held.scatter().norm())
    assert torch.equal(found.counts, held.counts)
    assert (found.scatter() - held.scatter()).norm() <= 1e-6 * size
    assert (found.means - held.means).abs().max() <= 2e-7 * held.means.abs().max()


@examples(200)
@given(PARTS, HOWS)
def test_counts_and_trace_stay(held, how):
    found = restored(held, how)
    scatter, wanted = found.scatter(), held.scatter()
    trace, size = float(wanted.trace()), float(wanted.norm())
    assert torch.equal(found.counts, held.counts)
    assert float(scatter.trace()) == pytest.approx(trace, rel=1e-9)
    values = torch.linalg.eigvalsh(scatter)
    assert values.min() >= -1e-12 * max(size, 1e-300)


@given(PARTS, HOWS, st.integers(-30, 30))
def test_scaled_embeddings_are_compressed_to_the_same_numbers(held, how, power):
    scaled = Statistics.of_pooled(
        held.counts, held.means * 2.0**power, scatter=held.scatter() * 4.0**power
    )
    plain = Statistics.of_pooled(held.counts, held.means, scatter=held.scatter())
    one, other = (
        CompressedStatistics.of(statistics, how) for statistics in (plain, scaled)
    )
    assert torch.equal(one.means.numbers, other.means.numbers)
    assert one.factor.numbers.shape == other.factor.numbers.shape


@pytest.mark.parametrize("energy", [0.3, 0.8, 0.99])
def test_energy_keeps_the_fewest_directions_that_hold_so_much(energy):
    held = make(5, 80, 20)
    compressed = CompressedStatistics.of(held, Compression(energy=energy))
    values = oracle.shape(held.scatter().numpy())[0]
    rank = len(compressed.factor.numbers)
    assert sum(values[: rank - 1]) < energy * sum(values) <= sum(values[:rank])
    assert compressed.left_out <= (1 - energy) * sum(values)
    both = CompressedStatistics.of(held, Compression(rank=2, energy=energy))
    assert len(both.factor.numbers) == min(rank, 2)


def test_rounding_to_int8_costs_no_more_than_the_last_direction_kept():
    held = make(7, 200, 24)
    values = oracle.shape(held.scatter().numpy())[0]
    for rank in (2, 6, 12):
        how = Compression(rank, dtype="int8")
        compressed = CompressedStatistics.of(held, how)
        unrounded = CompressedStatistics.of(held, Compression(rank))
        off = (compressed.factor.rows() - unrounded.factor.rows()).square().sum(dim=1)
        assert (off <= values[rank - 1] / 4).all()  # half a step each, at the worst


def test_means_far_from_the_origin_lose_by_their_distance_from_each_other():
    near, far = (make(8, 60, 10, offset=offset) for offset in (0.0, 1e4))
    for dtype, allowed in (("int8", 0.5), ("float16", 1e-2), ("float32", 1e-7)):
        held = restored(far, Compression(dtype=dtype))
        spread = float((near.means - near.means.mean(dim=0)).abs().max())
        assert (held.means - far.means).abs().max() <= allowed * spread


def test_means_alone_are_rounded_alike():
    held = make(9, 60, 10)
    how = Compression(2, dtype="int8")
    alone, both = restored(held.to("means"), how), restored(held, how)
    assert alone.content == "means"
    assert torch.equal(alone.means, both.means)


def test_no_samples_and_one_sample_a_class():
    for n in (0, 1):
        found = restored(make(1, n, 5), Compression(3, dtype="int8"))
        assert found.counts.sum() == n
        assert not found.scatter().any()


# Rows in few bits: lengths kept, errors bounded, rows of any size.


DTYPES = list(ROW_DTYPES)
#: What rounding takes from an entry at most, as a share of the row's largest one.
SHARE = {"float32": 2.0**-24, "float16": 2.0**-11, "int8": 1 / 254}


def some_rows(seed, count=5, dim=40, exponents=(0.0,)):
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.choice(exponents, size=(count, 1))
    return torch.from_numpy(rng.standard_t(3, size=(count, dim)) * sizes)


ROWS = st.builds(
    some_rows,
    st.integers(0, 2**32),
    st.integers(0, 6),
    st.integers(1, 60),
    st.just((-20.0, -3.0, 0.0, 6.0, 15.0)),
)


def plain(row, step):
    """What int8 makes of one row, number by number."""
    largest = max(abs(x) for x in row)
    if largest == 0:
        return [0] * len(row)
    step = max(step, largest / 127)
    return [round(x / step) for x in row]


@given(ROWS, st.sampled_from(DTYPES))
def test_entries_are_off_by_half_a_step_and_lengths_are_kept(rows, dtype):
    held = RoundedRows.of(rows, dtype)
    assert held.numbers.dtype == ROW_DTYPES[dtype]
    found, lengths = held.rows(), rows.norm(dim=1)
    assert found.shape == rows.shape
    assert torch.allclose(found.norm(dim=1), lengths, rtol=1e-12, atol=0)
    # The length puts as much right as rounding got wrong, at most.
    most = 2 * SHARE[dtype] * rows.abs().amax(dim=1) * rows.shape[1] ** 0.5
    assert ((found - rows).norm(dim=1) <= most).all()


@examples(60)
@given(ROWS, st.sampled_from(DTYPES), st.integers(-20, 20))
def test_scaled_rows_are_rounded_to_the_same_numbers(rows, dtype, power):
    held = RoundedRows.of(rows, dtype)
    scaled = RoundedRows.of(rows * 2.0**power, dtype)
    assert torch.equal(scaled.numbers, held.numbers)
    assert torch.equal(scaled.scales, held.scales * 2.0**power)


@pytest.mark.parametrize("step", [0.0, 0.3, 5.0, 1e3])
def test_int8_equals_the_plain_oracle(step):
    rows = some_rows(3)
    held = RoundedRows.of(rows, "int8", step)
    assert held.numbers.tolist() == [plain(row, step) for row in rows.tolist()]


def test_coarse_steps_bound_the_numbers_and_the_error():
    rows = some_rows(4)
    held = RoundedRows.of(rows, "int8", step=0.5)
    assert (held.scales <= 0.6).all()
    assert held.numbers.abs().max() <= (rows.abs().max() / 0.5).ceil()
    assert torch.allclose(held.rows().norm(dim=1), rows.norm(dim=1))
    assert RoundedRows.of(rows, "float16", step=0.5).numbers.abs().max() == 1


def test_zeros_stay_zeros_and_no_rows_are_no_rows():
    for dtype in DTYPES:
        held = RoundedRows.of(torch.zeros(2, 3, dtype=torch.float64), dtype)
        assert not held.rows().any()
        assert RoundedRows.of(torch.zeros(0, 3).double(), dtype).rows().shape == (0, 3)
    tiny = RoundedRows.of(torch.ones(1, 3).double(), "int8", step=100)
    assert not tiny.rows().any()
