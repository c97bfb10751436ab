"""Numbers in fixed point, in the ring of integers modulo 2^64, where sums are exact.

A sum of ring elements does not depend on the order of its terms, and a mask that is
uniform in the ring hides what it is added to perfectly.
"""

from __future__ import annotations

import math

import numpy as np

#: The most fraction bits that there can be.
MOST_BITS = 52
#: How far beyond the radius a norm may lie: what float32 rounds.
SLACK = 1e-6


def largest_fraction_bits(radius: float, max_rows: int) -> int:
    """The largest f with ``4 M max(R, R^2) 2^f < 2^63``; negative where none fits.

    Sums over M rows x of norm at most R stay in the ring then, and so do those of
    ``(x - o)(x - o)^T`` about any o of norm at most R, off the diagonal times the root
    of 2: ``|x - o|^2 <= 4 R^2``.

    Parameters
    ----------
    radius : float
        R, above 0.
    max_rows : int
        M.
    """
    # By logarithms: the square of a radius may be beyond float64.
    norm = math.log2(radius) + math.log2(1 + SLACK)
    size = 2 + math.log2(max_rows) + max(norm, 2 * norm)
    return min(MOST_BITS, math.ceil(63 - size) - 1)


def encode(values: np.ndarray, bits: int) -> np.ndarray:
    """``round_half_even(v 2^f)`` in the ring: uint64 of the shape of `values`, float64.

    The values must lie within ``2^(63 - f)``.
    """
    scaled = np.rint(np.asarray(values, dtype=np.float64) * 2.0**bits)
    return scaled.astype(np.int64).view(np.uint64)


def decode(total: np.ndarray, bits: int) -> np.ndarray:
    """Of ring elements, or of their sum: float64. A sum of K encoded values is off by
    at most ``K 2^-(f+1)``."""
    return total.view(np.int64).astype(np.float64) / 2.0**bits


def svec(matrix: np.ndarray) -> np.ndarray:
    """A symmetric matrix [D, D] as a vector of length D (D + 1) / 2: its diagonal, then
    what is above it, row by row, times the root of 2. Norms stay what they are."""
    dim = len(matrix)
    upper = matrix[np.triu_indices(dim, 1)]
    return np.concatenate([np.diagonal(matrix), np.sqrt(2.0) * upper])


def unsvec(vector: np.ndarray, dim: int) -> np.ndarray:
    """The matrix [D, D] that `svec` was given."""
    matrix = np.zeros((dim, dim))
    matrix[np.triu_indices(dim, 1)] = vector[dim:] / np.sqrt(2.0)
    matrix += matrix.T
    matrix[np.diag_indices(dim)] = vector[:dim]
    return matrix
