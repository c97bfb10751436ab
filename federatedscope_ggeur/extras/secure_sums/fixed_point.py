"""Fixed-point numbers in the ring of integers modulo 2^64, where sums are exact.

A sum in the ring does not depend on the order of its terms. A mask that is uniform in
the ring hides a number perfectly.
"""

from __future__ import annotations

import math

import numpy as np

from .limits import MOST_BITS

#: A norm may exceed the radius by this share, since float32 rounds.
SLACK = 1e-6


def largest_fraction_bits(radius: float, max_rows: int) -> int:
    """The most fraction bits f with which sums do not overflow; negative if none fits.

    f is the largest number with ``4 M max(R, R^2) 2^f < 2^63``. Then sums over M rows x
    of norm at most R do not overflow. Sums of ``(x - o)(x - o)^T`` about any o of norm
    at most R do not overflow either, since ``|x - o|^2 <= 4 R^2``. There is also room
    for the factor sqrt(2) in `svec`.

    Parameters
    ----------
    radius : float
        R, above 0.
    max_rows : int
        M.
    """
    # By logarithms, because the square of a radius may be too large for float64.
    norm = math.log2(radius) + math.log2(1 + SLACK)
    size = 2 + math.log2(max_rows) + max(norm, 2 * norm)
    return min(MOST_BITS, math.ceil(63 - size) - 1)


def encode(values: np.ndarray, bits: int) -> np.ndarray:
    """Encode float64 numbers in fixed point, with f = `bits` fraction bits.

    Each value v becomes ``round_half_even(v 2^f)``. The result is uint64 of the same
    shape. No absolute value may exceed ``2^(63 - f)``.
    """
    scaled = np.rint(np.asarray(values, dtype=np.float64) * 2.0**bits)
    return scaled.astype(np.int64).view(np.uint64)


def decode(total: np.ndarray, bits: int) -> np.ndarray:
    """Decode ring elements, or a sum of them, to float64.

    A sum of K encoded values has an error of at most ``K 2^-(f+1)``, with f = `bits`.
    """
    return total.view(np.int64).astype(np.float64) / 2.0**bits


def svec(matrix: np.ndarray) -> np.ndarray:
    """Write a symmetric matrix [D, D] as a vector of length D (D + 1) / 2.

    First comes the diagonal, then the upper triangle row by row, times the root of 2.
    So the norm of the vector is the Frobenius norm of the matrix.
    """
    dim = len(matrix)
    upper = matrix[np.triu_indices(dim, 1)]
    return np.concatenate([np.diagonal(matrix), np.sqrt(2.0) * upper])


def unsvec(vector: np.ndarray, dim: int) -> np.ndarray:
    """Rebuild the matrix [D, D] from its `svec`."""
    matrix = np.zeros((dim, dim))
    matrix[np.triu_indices(dim, 1)] = vector[dim:] / np.sqrt(2.0)
    matrix += matrix.T
    matrix[np.diag_indices(dim)] = vector[:dim]
    return matrix
