"""Limits and names of the settings, which the manifest knows without torch."""

import math

#: The largest number of fraction bits.
MOST_BITS = 100
#: The largest roster: every pair of clients has a key.
MOST_CLIENTS = 10_000
#: Clients trust the server to send them each other's keys.
SERVER = "server"
#: A norm may exceed the radius by this share, since float32 rounds.
SLACK = 1e-6


def largest_fraction_bits(radius: float, max_rows: int, limbs: int) -> int:
    """The most fraction bits f with which sums do not overflow; negative if none fits.

    f is the largest number with ``4 M max(R, R^2) 2^f < 2^(64 limbs - 1)``. Then sums
    over M rows x of norm at most R do not overflow. Sums of ``(x - o)(x - o)^T`` about
    any o of norm at most R do not overflow either, since ``|x - o|^2 <= 4 R^2``. There
    is also room for the factor sqrt(2) in `svec`.

    Parameters
    ----------
    radius : float
        R, above 0.
    max_rows : int
        M.
    limbs : int
        The number of 64-bit limbs of a ring element.
    """
    # By logarithms, because the square of a radius may be too large for float64.
    norm = math.log2(radius) + math.log2(1 + SLACK)
    size = 2 + math.log2(max_rows) + max(norm, 2 * norm)
    return min(MOST_BITS, math.ceil(64 * limbs - 1 - size) - 1)
