"""Differential privacy of Gaussian noise: from epsilon and delta to a scale, and back.

A mechanism is mu-GDP if its output tells two neighbouring data sets apart no better
than one draw tells N(0, 1) from N(mu, 1). If one row changes a vector by at most Delta,
the vector with noise of standard deviation s is (Delta / s)-GDP. Several outputs
together are ``sqrt(sum mu_b^2)``-GDP, even if each depends on earlier ones. These
statements are exact.

References
----------
Dong, Roth, Su, "Gaussian differential privacy", JRSS B 2022: composition.
Balle, Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018,
Theorem 8: delta of a given epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

_HALVINGS = 200


def delta_of(epsilon: float, mu: float) -> float:
    """The smallest delta for which every mu-GDP mechanism is (epsilon, delta)-private.

    The formula is ``Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)``.
    """
    if mu <= 0:
        return 0.0
    below = _normal(mu / 2 - epsilon / mu)
    return max(0.0, below - math.exp(epsilon) * _normal(-mu / 2 - epsilon / mu))


@cache
def mu_of(epsilon: float, delta: float) -> float:
    """The largest mu for which every mu-GDP mechanism is (epsilon, delta)-private.

    Parameters
    ----------
    epsilon : float
        Above 0 and at most 100.
    delta : float
        Above 0 and below 1.
    """
    return _largest(lambda mu: delta_of(epsilon, mu) <= delta)


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest epsilon for which every mu-GDP mechanism is (epsilon,
    delta)-private.

    The result is infinite if epsilon would be above 700.
    """
    found = _largest(lambda epsilon: delta_of(epsilon, mu) > delta, most=700.0)
    return found if found < 700.0 else math.inf


def _normal(x: float) -> float:
    """The distribution function of N(0, 1)."""
    return math.erfc(-x / math.sqrt(2)) / 2


def _largest(holds: Callable[[float], bool], most: float = math.inf) -> float:
    """The largest number from 0 to `most` for which `holds` is true.

    `holds` must be true for all smaller numbers and false for all larger ones.
    """
    low, high = 0.0, 1.0
    while holds(high):
        if high >= most:
            return most
        low, high = high, min(2 * high, most)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
