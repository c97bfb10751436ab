"""Exact draws of the discrete Gaussian. No rounding weakens the privacy of this noise.

Only integers decide a draw. A word of 63 random bits is compared with the first 63 bits
of a probability. In one of 2^63 draws both are equal; then the rest of the probability
decides, as a fraction of whole numbers.

References
----------
Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", NeurIPS
2020, Algorithms 1 to 3.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable

import numpy as np

#: A function that takes n and returns n random words, uint64.
Words = Callable[[int], np.ndarray]
_BITS = 63
_ONE = 1 << _BITS
#: The largest standard deviation, in steps. Draws must fit into 63 bits.
LARGEST_DEVIATION = 2**50


def system_words(count: int) -> np.ndarray:
    """`count` random words from the operating system: uint64 array [count]."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def seeded_words(generator: np.random.Generator) -> Words:
    """A source of repeatable words, for tests only. Noise made from them protects
    nothing."""
    return lambda count: generator.integers(0, 2**64, size=count, dtype=np.uint64)


def discrete_gaussian(
    count: int, deviation: int, words: Words = system_words
) -> np.ndarray:
    """Draw whole numbers k with probability proportional to ``exp(-k^2 / 2 s^2)``.

    Parameters
    ----------
    count : int
    deviation : int
        The parameter s, from 1 to `LARGEST_DEVIATION`.
    words : callable (int) -> uint64 array

    Returns
    -------
    int64 array of shape (count,)
    """
    if not 1 <= deviation <= LARGEST_DEVIATION:
        raise ValueError(f"the deviation must lie in 1..2^50, got {deviation}")
    draws = np.zeros(count, dtype=np.int64)
    missing, scale = np.arange(count), deviation + 1
    square, whole = deviation**2, 2 * (deviation * scale) ** 2
    while len(missing):
        drawn = _laplace(len(missing), scale, words)
        # exp(-(|k| - s^2/t)^2 / 2 s^2) with Python's integers, which do not overflow
        off = np.abs(drawn).astype(object) * scale - square
        accepted = _exponentially(off * off, whole, words)
        draws[missing[accepted]] = drawn[accepted]
        missing = missing[~accepted]
    return draws


def _laplace(count: int, scale: int, words: Words) -> np.ndarray:
    """Draw whole numbers k with probability proportional to ``exp(-|k| / t)``.

    `scale` is t. The result is an int64 array [count].
    """
    draws, missing = np.zeros(count, dtype=np.int64), np.arange(count)
    while len(missing):
        low = _below(len(missing), scale, words)
        kept = _exponentially(low.astype(object), scale, words)
        times = _geometric(len(missing), words)
        sizes = low + scale * times
        negative = (words(len(missing)) & np.uint64(1)).astype(bool)
        kept &= ~(negative & (sizes == 0))  # else zero would be twice as likely
        signed = np.where(negative, -sizes, sizes)
        draws[missing[kept]] = signed[kept]
        missing = missing[~kept]
    return draws


def _below(count: int, limit: int, words: Words) -> np.ndarray:
    """Draw uniform whole numbers from 0 to `limit` - 1: int64 array [count]."""
    draws, missing = np.zeros(count, dtype=np.int64), np.arange(count)
    shift = np.uint64(64 - limit.bit_length())
    while len(missing):
        drawn = (words(len(missing)) >> shift).astype(np.int64)
        fits = drawn < limit
        draws[missing[fits]] = drawn[fits]
        missing = missing[~fits]
    return draws


def _geometric(count: int, words: Words) -> np.ndarray:
    """Draw how often an event of probability 1/e happens before it fails.

    The result is an int64 array [count].
    """
    times, going = np.zeros(count, dtype=np.int64), np.arange(count)
    while len(going):
        happens = _exponentially(np.ones(len(going), dtype=object), 1, words)
        going = going[happens]
        times[going] += 1
    return times


def _exponentially(above: np.ndarray, below: int, words: Words) -> np.ndarray:
    """Draw events that happen with probability ``exp(-g)``, g = above / below.

    Parameters
    ----------
    above : array of Python's int, of shape (n,), none negative
    below : int

    Returns
    -------
    bool array of shape (n,)
    """
    wholes, rests = above // below, above % below
    happens = _with_fraction(rests, below, words)
    left = np.flatnonzero(happens & (wholes > 0))
    count = 0
    while len(left):
        # One factor 1/e for each whole number in g.
        once = _with_fraction(np.full(len(left), 1, dtype=object), 1, words)
        happens[left[~once]] = False
        count += 1
        left = left[once]
        left = left[wholes[left] > count]
    return happens


def _with_fraction(above: np.ndarray, below: int, words: Words) -> np.ndarray:
    """Draw events that happen with probability ``exp(-g)``, for g from 0 to 1.

    Let A_k be an event of probability g/k. The first k whose A_k fails is odd with
    probability ``exp(-g)``. Arguments and result are as for `_exponentially`.
    """
    first = np.array([min(x * _ONE // below, _ONE) for x in above], dtype=np.uint64)
    odd = np.ones(len(above), dtype=bool)
    going, k = np.arange(len(above)), 1
    while len(going):
        bits = first[going] // np.uint64(k)
        drawn = words(len(going)) >> np.uint64(1)
        happens = drawn < bits
        for i in np.flatnonzero(drawn == bits):
            rest = above[going[i]] * _ONE - int(bits[i]) * below * k
            happens[i] = secrets.randbelow(below * k) < rest
        going = going[happens]
        odd[going] = ~odd[going]
        k += 1
    return odd
