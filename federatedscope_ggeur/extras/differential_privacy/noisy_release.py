"""The numbers that clients release under differential privacy, and their noise.

Clients scale rows to length 1 and round them to a grid. So all sums are sums of whole
numbers, and one row changes a sum by at most the sensitivity in the table below. Stage
"moments" counts the rows of each class, and sums all rows. Stage "spread" subtracts the
noisy overall mean from each row, cuts the difference to length r, and sums these per
class. If `square` is set, it also sums their second moment over all classes.

========  ==================  ===========
block     numbers             sensitivity
========  ==================  ===========
counts    C                   1
mean      D                   1
sums      C D                 r
square    D (D + 1) / 2       r^2
========  ==================  ===========

Block b gets noise of standard deviation ``Delta_b / (mu sqrt(a_b))``. The shares a_b
add up to 1, so that all blocks together are mu-GDP. The square is
a symmetric matrix. Off its diagonal the noise is smaller by the factor sqrt(2). This
protects as well as equal noise on all D^2 entries.

Exact draws of the discrete Gaussian. No rounding weakens the privacy of this noise.

Only integers decide a draw. A word of 63 random bits is compared with the first 63 bits
of a probability. In one of 2^63 draws both are equal; then the rest of the probability
decides, as a fraction of whole numbers.

References
----------
Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", NeurIPS
2020, Algorithms 1 to 3.

Differential privacy of Gaussian noise: from epsilon and delta to a scale, and back.

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
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import torch
from torch import Tensor

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
    largest = _largest(lambda epsilon: delta_of(epsilon, mu) > delta, most=700.0)
    return largest if largest < 700.0 else math.inf


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


MOMENTS, SPREAD = RELEASE_STAGES = ("moments", "spread")
#: Binary digits after the point: of the released numbers, and of a row's entries.
GRID_BITS, ROW_BITS = 32, 16
#: Row minus mean is cut to this norm: with two encoders, 75% of rows are shorter.
CLIP = 0.75
#: From this many rows a class on, the second moment is worth its share of the budget.
ROWS_FOR_SQUARE = 100
_SHARES = {
    False: {"counts": 0.03, "mean": 0.02, "sums": 0.95},
    True: {"counts": 0.03, "mean": 0.02, "sums": 0.5, "square": 0.45},
}
_SENSITIVITIES = {"counts": 1.0, "mean": 1.0, "sums": CLIP, "square": CLIP**2}
#: A total may contain noise of up to this many standard deviations.
_DEVIATIONS = 12
_CHUNK = 4096


@dataclass(frozen=True)
class ReleasePlan:
    """The public numbers of a release.

    Attributes
    ----------
    num_classes, dim : int
        C, and the dimension D of the rows.
    epsilon, delta : float
    square : bool
        Whether the second moment is released.
    clients : int
        K, the number of clients that add noise; 1 if only the server adds noise.
    spared : int
        t, the number of clients that may leave out or reveal their noise: the noise of
        the other clients is enough. With t = K each client's own noise is enough.
    """

    num_classes: int
    dim: int
    epsilon: float
    delta: float
    square: bool
    clients: int = 1
    spared: int = 0

    @cached_property
    def mu(self) -> float:
        return mu_of(self.epsilon, self.delta)

    @property
    def shares(self) -> dict[str, float]:
        return _SHARES[self.square]

    def scale(self, block: str) -> float:
        """The standard deviation of the noise that a block needs."""
        return _SENSITIVITIES[block] / (self.mu * math.sqrt(self.shares[block]))

    def steps(self, block: str) -> int:
        """The standard deviation of one client's noise for a block, in grid steps."""
        sharing = max(self.clients - self.spared, 1)
        return math.ceil(self.scale(block) * 2**GRID_BITS / math.sqrt(sharing))

    def total(self, block: str) -> float:
        """The standard deviation of the noise of all clients together, for a block."""
        return self.steps(block) / 2**GRID_BITS * math.sqrt(self.clients)

    def sharers(self, adding: int) -> float:
        """The mu against attackers who know the noise of all but `adding` clients."""
        if not adding:
            return math.inf
        squares = (
            (_SENSITIVITIES[b] * 2**GRID_BITS / self.steps(b)) ** 2 / adding
            for b in self.shares
        )
        return math.sqrt(sum(squares))

    def length(self, stage: str) -> int:
        """How many numbers a client sends in `stage`."""
        return sum(size for _, size, _ in self._parts(stage))

    def _parts(self, stage: str) -> Iterator[tuple[str, int, int]]:
        """Yield the parts of a stage: block, length, standard deviation in steps."""
        dim = self.dim
        if stage == MOMENTS:
            yield "counts", self.num_classes, self.steps("counts")
            yield "mean", dim, self.steps("mean")
            return
        yield "sums", self.num_classes * dim, self.steps("sums")
        if self.square:
            steps = self.steps("square")
            yield "square", dim, steps
            yield "square", dim * (dim - 1) // 2, math.ceil(steps / math.sqrt(2))

    def deviations(self, stage: str) -> np.ndarray:
        """The standard deviation of one client's noise for each number, in steps:
        [length]."""
        return np.concatenate([np.full(n, float(s)) for _, n, s in self._parts(stage)])

    def noise(self, stage: str, words: Words = system_words) -> np.ndarray:
        """Draw one client's noise for a stage: int64 [length], in steps of the grid."""
        return self.noises(stage, 1, words)[0]

    def noises(self, stage: str, count: int, words: Words = system_words) -> np.ndarray:
        """Draw the noise of `count` clients for a stage: int64 [count, length]."""
        drawn = [
            discrete_gaussian(count * size, steps, words).reshape(count, size)
            for _, size, steps in self._parts(stage)
        ]
        return np.concatenate(drawn, axis=1)

    def moments(self, features: Tensor, labels: Tensor) -> np.ndarray:
        """Stage "moments" for a client's rows [n, D], without noise: int64 [C + D]."""
        counts = np.bincount(labels.numpy(), minlength=self.num_classes)
        total = np.zeros(self.dim, dtype=np.int64)
        for part in features.split(_CHUNK):
            total += unit_rows(part).sum(axis=0)
        grid = 2 ** (GRID_BITS - ROW_BITS)
        return np.concatenate([counts.astype(np.int64) * 2**GRID_BITS, total * grid])

    def spread(self, features: Tensor, labels: Tensor, centre: Tensor) -> np.ndarray:
        """Stage "spread" for a client's rows about `centre` [D], without noise.

        Returns
        -------
        int64 array of shape (length,)
        """
        dim, grid = self.dim, 2 ** (GRID_BITS - ROW_BITS)
        sums = np.zeros((self.num_classes, dim), dtype=np.int64)
        square = np.zeros((dim, dim), dtype=np.int64)
        for part, own in zip(features.split(_CHUNK), labels.split(_CHUNK)):
            rows = cut_rows(unit_rows(part), centre.double().numpy())
            np.add.at(sums, own.numpy(), rows)
            if self.square:
                exact = rows.astype(np.float64)  # sums of at most 2^53, so exact
                square += (exact.T @ exact).astype(np.int64)
        numbers = [sums.flatten() * grid]
        if self.square:
            numbers += [np.diagonal(square), square[np.triu_indices(dim, 1)]]
        return np.concatenate(numbers)

    def centre(self, total: np.ndarray) -> tuple[Tensor, Tensor]:
        """The noisy counts [C] and the noisy mean of all rows [D], float64.

        The mean is cut to length 1, because no mean of unit rows is longer.
        """
        values = torch.from_numpy(total.astype(np.float64) / 2**GRID_BITS)
        counts, summed = values[: self.num_classes], values[self.num_classes :]
        mean = summed / counts.sum().clamp(min=1.0)
        mean = mean / mean.norm().clamp(min=1.0)
        return counts, mean.float().double()  # rounded as in a message

    def released(
        self, counts: Tensor, centre: Tensor, total: np.ndarray
    ) -> NoisyStatistics:
        """Make the release from the results of stage "moments" and the total of
        "spread"."""
        values = torch.from_numpy(total.astype(np.float64) / 2**GRID_BITS)
        size, dim = self.num_classes * self.dim, self.dim
        sums, square = values[:size].reshape(self.num_classes, dim), None
        if self.square:
            square = torch.diag(values[size : size + dim])
            upper = torch.zeros(dim, dim, dtype=torch.float64)
            above = torch.triu_indices(dim, dim, 1)
            upper[above[0], above[1]] = values[size + dim :]
            square = square + upper + upper.T
        noise = {block: self.total(block) for block in self.shares}
        return NoisyStatistics(counts, centre, sums, square, noise)

    def problem(self, stage: str, total: np.ndarray, most_rows: int) -> str:
        """The reason why the total of a stage is impossible; "" if it is possible.

        It is possible if `most_rows` rows can have it, with noise of up to 12 standard
        deviations.
        """
        at = 0
        for block, size, steps in self._parts(stage):
            part = total[at : at + size].astype(np.float64) / 2**GRID_BITS
            at += size
            noise = _DEVIATIONS * steps / 2**GRID_BITS * math.sqrt(self.clients)
            most = most_rows * _SENSITIVITIES[block] + noise
            least = -noise if block == "counts" else -most
            if size and not (least <= part.min() and part.max() <= most):
                return f"numbers too large for {most_rows} rows with noise"
        return ""


@dataclass(frozen=True)
class PublicRows:
    """Means and covariance of public rows, in the space of the release.

    Attributes
    ----------
    means : Tensor of shape (C, D), float64
        The mean of each class.
    covariance : Tensor of shape (D, D), float64
        The covariance of all rows about their mean.
    """

    means: Tensor
    covariance: Tensor

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, num_classes: int) -> PublicRows:
        """Make means and covariance from rows [n, D] with labels [n].

        Every class must have a row.
        """
        rows = features.to(torch.float64)
        counts = torch.bincount(labels, minlength=num_classes).to(torch.float64)
        sums = torch.zeros(num_classes, rows.shape[1], dtype=torch.float64)
        sums.index_add_(0, labels, rows)
        centred = rows - rows.mean(dim=0)
        return cls(sums / counts[:, None], centred.T @ centred / len(rows))


@dataclass(frozen=True, eq=False)
class NoisyStatistics:
    """A release: noisy sums over the clients' rows.

    Whatever is computed from a release is as private as the release. No number in it is
    exact: counts may be negative, and `square` need not be positive semi-definite.

    Attributes
    ----------
    counts : Tensor of shape (C,), float64
    centre : Tensor of shape (D,), float64
        The noisy mean of all rows.
    sums : Tensor of shape (C, D), float64
        For each class, the sum of z, a row minus `centre`, cut to length `CLIP`.
    square : Tensor of shape (D, D), float64, or None
        The sum of ``z z^T`` over all rows.
    noise : dict from block to float
        The standard deviation of each block's noise; for `square`, on the diagonal.
    public : PublicRows, optional
        Public knowledge beside the release.
    """

    counts: Tensor
    centre: Tensor
    sums: Tensor
    square: Tensor | None
    noise: dict[str, float]
    public: PublicRows | None = None

    @property
    def num_classes(self) -> int:
        return len(self.counts)

    @property
    def dim(self) -> int:
        return len(self.centre)

    @property
    def classes(self) -> list[int]:
        """All declared classes, because no exact number shows which ones have rows."""
        return list(range(self.num_classes))


def unit_rows(features: Tensor) -> np.ndarray:
    """Scale rows [n, D] to length 1, in steps of ``2^-16``: int64 [n, D].

    Entries are rounded towards zero, so no row is longer than 1. A row of length zero
    becomes zero, and so does a row with NaN or infinity.
    """
    exact = features.double().numpy()
    exact = np.where(np.isfinite(exact).all(axis=1, keepdims=True), exact, 0.0)
    largest = np.abs(exact).max(axis=1, keepdims=True, initial=0.0)
    exact = exact / np.where(largest > 0, largest, 1.0)
    norms = np.linalg.norm(exact, axis=1, keepdims=True)
    return _cut(exact / np.where(norms > 0, norms, 1.0) * 2**ROW_BITS, 1.0)


def cut_rows(rows: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Rows of `unit_rows` minus `centre`, cut to length `CLIP`: int64 [n, D].

    Entries are in steps of ``2^-16`` and rounded towards zero.
    """
    return _cut(rows - centre * 2**ROW_BITS, CLIP)


def _cut(rows: np.ndarray, most: float) -> np.ndarray:
    limit = most * 2**ROW_BITS
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    # Slightly less, so that no row is too long if its norm was rounded down.
    factor = np.where(norms > limit, limit * (1 - 1e-12) / np.maximum(norms, limit), 1)
    return np.trunc(rows * factor).astype(np.int64)


def replaced_mu(plan: ReleasePlan) -> float:
    """A bound on mu for two data sets that differ in the value of one row.

    `plan.mu` itself holds for data sets where one has an additional row. The bound is
    ``plan.mu * sqrt(max(same, other))``: `same` if the row keeps its class, `other` if
    its class changes. Both are weighted sums of the blocks' shares of the budget.
    """
    a = {"square": 0.0, **plan.shares}
    same = 4 * (a["mean"] + a["sums"]) + 2 * a["square"]
    other = 2 * a["counts"] + 4 * a["mean"] + 2 * a["sums"] + 2 * a["square"]
    return plan.mu * math.sqrt(max(same, other))
