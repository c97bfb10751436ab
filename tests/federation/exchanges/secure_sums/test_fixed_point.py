"""Numbers in the ring of integers modulo 2^64."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federatedscope_ggeur.federation.exchanges.secure_sums.fixed_point import (
    decode,
    encode,
    largest_fraction_bits,
    svec,
    unsvec,
)


@pytest.mark.parametrize(
    ("radius", "rows", "bits"), [(1.0, 2**20, 40), (40.0, 2**14, 36), (1e9, 2**20, -19)]
)
def test_the_largest_precision_fits_and_one_bit_more_does_not(radius, rows, bits):
    assert largest_fraction_bits(radius, rows) == bits
    size = Fraction(4 * rows) * max(Fraction(radius), Fraction(radius) ** 2)
    assert size * Fraction(2) ** bits < 2**63 <= size * Fraction(2) ** (bits + 1) * 1.01


def test_a_radius_beyond_all_bounds_fits_nothing():
    assert largest_fraction_bits(1e308, 2**20) < -1900
    assert largest_fraction_bits(1e-9, 1) == 52


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=20), st.integers(8, 45))
def test_a_sum_is_exact_but_for_the_rounding_of_its_terms(values, bits):
    total = np.zeros(1, dtype=np.uint64)
    for value in values:
        total = total + encode(np.array([value]), bits)
    exact = sum(Fraction(value) for value in values)
    error = abs(Fraction(float(decode(total, bits)[0])) - exact)
    # Beside the terms' rounding that of the result to float64.
    assert error <= Fraction(len(values), 2 ** (bits + 1)) + abs(exact) / 2**52


def test_ties_go_to_the_even_number():
    ties = np.array([0.5, 1.5, 2.5, -0.5, -1.5]) / 2**8
    assert encode(ties, 8).view(np.int64).tolist() == [0, 2, 2, 0, -2]


def test_a_matrix_as_a_vector_keeps_its_norm_and_comes_back():
    matrix = np.random.default_rng(0).normal(size=(5, 5))
    matrix = matrix + matrix.T
    vector = svec(matrix)
    assert len(vector) == 15
    assert np.linalg.norm(vector) == pytest.approx(np.linalg.norm(matrix), rel=1e-14)
    assert vector[:5].tolist() == np.diag(matrix).tolist()
    assert vector[5] == pytest.approx(2**0.5 * matrix[0, 1])
    np.testing.assert_allclose(unsvec(vector, 5), matrix, rtol=1e-15)
