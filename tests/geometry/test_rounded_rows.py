"""Rows in few bits: lengths kept, errors bounded, rows of any size."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federatedscope_ggeur.geometry import ROW_DTYPES, RoundedRows

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


@settings(max_examples=100)
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


@settings(max_examples=60)
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
