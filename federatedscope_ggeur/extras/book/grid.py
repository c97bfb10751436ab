"""Class statistics as whole numbers on a grid. Adding and removing rows is exact.

Each row is rounded to the grid first. So statistics are sums of integers, and every
order of adding and removing the same rows gives the same numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.geometry.scatter import Means, Scatter, add_to_mean
from federatedscope_ggeur.geometry.statistics import ALL, Statistics, check_embeddings

#: The exponent of the default step. It suits embeddings of usual length.
USUAL_EXPONENT = -32
#: Exponents of steps lie between -400 and 400, so that squares fit into float64.
MOST_EXPONENT = 400
# A row's numbers have 44 bits and a sign: three digits of 15 bits. So sums of products
# of digits are exact in float64 over as many rows as `_ROWS`.
_BITS, _DIGIT, _ROWS = 44, 15, 2**18
# A second moment is high * 2^60 + low, with 0 <= low < 2^60.
_LOW = 4 * _DIGIT
_MOST = 2**62
_LARGER = (
    "a new book takes larger steps (ggeur.book_steps), but those of an existing book "
    "are fixed"
)


@dataclass(frozen=True)
class Grid:
    """A public step for each of `D` dimensions.

    Attributes
    ----------
    exponents : tuple of int, of length D
        The step of dimension d is ``2 ** exponents[d]``.
    """

    exponents: tuple[int, ...]

    @classmethod
    def of_steps(cls, steps: Sequence[float], dim: int) -> Grid:
        """Make the grid of the given steps, which must be powers of two.

        Parameters
        ----------
        steps : sequence of float
            One step for each of the `dim` dimensions, or one for all. The default step
            is 2^-32. With it, float32 entries from 2^-9 to 4096 lose nothing.

        Raises
        ------
        StatisticsError
            The number of steps is wrong, or a step is no power of two.
        """
        known = list(steps) or [2.0**USUAL_EXPONENT]
        if len(known) not in (1, dim):
            raise StatisticsError(
                f"the grid has {len(known)} steps for {dim} dimensions; give one step "
                "for each dimension, or one for all"
            )
        shares, exponents = np.frexp(np.array(known, dtype=np.float64))
        if (shares != 0.5).any() or (abs(exponents - 1) > MOST_EXPONENT).any():
            raise StatisticsError(
                f"the steps of a grid must be powers of two from 2^-{MOST_EXPONENT} to "
                f"2^{MOST_EXPONENT}, such as 2^-32 = {2.0**USUAL_EXPONENT!r}"
            )
        whole = [int(e) - 1 for e in exponents]
        return cls(tuple(whole * dim if len(whole) == 1 else whole))

    @property
    def dim(self) -> int:
        return len(self.exponents)

    def numbers(self, features: Tensor) -> np.ndarray:
        """Rows [n, D] as whole numbers of steps: int64 array [n, D].

        Halves are rounded to the even number.

        Raises
        ------
        StatisticsError
            A number is too large for the grid, or D differs from the grid's.
        """
        if features.shape[1] != self.dim:
            raise StatisticsError(
                f"the rows have {features.shape[1]} dimensions, but the grid has "
                f"{self.dim}"
            )
        rows = features.detach().cpu().double().numpy()
        numbers = np.rint(np.ldexp(rows, -np.array(self.exponents)))
        far = np.abs(numbers) >= 2.0**_BITS
        if far.any():
            row, d = np.argwhere(far)[0]
            raise StatisticsError(
                f"a row has {rows[row, d]:g} in dimension {d}, but the step there, "
                f"2^{self.exponents[d]}, allows only numbers below "
                f"{2.0 ** (_BITS + self.exponents[d]):g}; {_LARGER}"
            )
        return numbers.astype(np.int64)

    def rounded(self, features: Tensor) -> Tensor:
        """Rows [n, D], each entry rounded to the grid: Tensor [n, D], float64."""
        steps = np.ldexp(self.numbers(features).astype(float), self.exponents)
        return torch.from_numpy(steps)


@dataclass(frozen=True, eq=False)
class GridStatistics:
    """Counts, class sums and one second moment over all classes, as integers.

    Objects are immutable. ``a + b`` are the statistics of both sets of rows together.
    ``a - b`` are the statistics of the rows that are left. Both are exact.

    Attributes
    ----------
    grid : Grid
    counts : int64 array of shape [C]
    sums : int64 array of shape [C, D]
        The sum of the rows of each class, in steps.
    high, low : int64 array of shape [D (D + 1) / 2]
        The upper triangle of ``sum x x^T`` over all rows, in products of steps, as
        ``high * 2^60 + low`` with ``0 <= low < 2^60``.

    Raises
    ------
    StatisticsError
        Shapes do not fit, a count is negative, or a number is out of range. Or `a` and
        `b` differ in grid or number of classes.
    """

    grid: Grid
    counts: np.ndarray
    sums: np.ndarray
    high: np.ndarray
    low: np.ndarray

    def __post_init__(self):
        size = self.grid.dim * (self.grid.dim + 1) // 2
        shapes = {
            "counts": self.counts.shape[:1],
            "sums": (len(self.counts), self.grid.dim),
            "high": (size,),
            "low": (size,),
        }
        for name, shape in shapes.items():
            held = getattr(self, name)
            if held.shape != shape or held.dtype != np.int64:
                raise StatisticsError(
                    f"{name}: expected int64 of shape {list(shape)}, got {held.dtype} "
                    f"of shape {list(held.shape)}"
                )
        if (self.counts < 0).any():
            c = int(np.argmin(self.counts))
            raise StatisticsError(
                f"class {c} would have {int(self.counts[c])} rows; remove only rows "
                "that were added"
            )
        # In float64, where a sum of int64 does not wrap.
        largest = np.abs(self.sums.astype(float)).sum(axis=0).max(initial=0.0)
        tall = np.abs(self.high.astype(float)).max(initial=0.0)
        in_range = (self.low >= 0).all() and (self.low < 2**_LOW).all()
        if max(largest, tall, float(self.counts.sum()) * 2**36) >= _MOST:
            raise StatisticsError(
                f"the sums of these rows do not fit into 64 bits; {_LARGER}"
            )
        if not in_range or (self.sums[self.counts == 0] != 0).any():
            raise StatisticsError("the sums are damaged: no set of rows can have them")

    @classmethod
    def empty(cls, num_classes: int, grid: Grid) -> GridStatistics:
        """The statistics of no rows at all. Adding them changes nothing."""
        none = np.zeros(grid.dim * (grid.dim + 1) // 2, dtype=np.int64)
        counts = np.zeros(num_classes, dtype=np.int64)
        sums = np.zeros((num_classes, grid.dim), dtype=np.int64)
        return cls(grid, counts, sums, none, none)

    @classmethod
    def of_rows(
        cls, features: Tensor, labels: Tensor, num_classes: int, grid: Grid
    ) -> GridStatistics:
        """Make the statistics of rows [n, D], rounded to the grid, with labels [n].

        Raises
        ------
        StatisticsError
            The same cases as for `Statistics.from_embeddings` and `Grid.numbers`.
        """
        features, labels = torch.as_tensor(features), torch.as_tensor(labels)
        check_embeddings(features, labels, num_classes)
        total = cls.empty(num_classes, grid)
        for rows, of in zip(features.split(_ROWS), labels.split(_ROWS)):
            numbers, own = grid.numbers(rows), of.numpy()
            counts = np.bincount(own, minlength=num_classes).astype(np.int64)
            sums = np.zeros((num_classes, grid.dim), dtype=np.int64)
            for c in np.flatnonzero(counts):
                sums[c] = numbers[own == c].sum(axis=0)
            total = total + cls(grid, counts, sums, *_second_moment(numbers))
        return total

    @property
    def num_classes(self) -> int:
        return len(self.counts)

    @property
    def classes(self) -> list[int]:
        """The classes that have rows, ascending."""
        return np.flatnonzero(self.counts).tolist()

    def __add__(self, other: GridStatistics) -> GridStatistics:
        return self._with(other, 1)

    def __sub__(self, other: GridStatistics) -> GridStatistics:
        return self._with(other, -1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GridStatistics):
            return NotImplemented
        names = ("counts", "sums", "high", "low")
        same = all(np.array_equal(getattr(self, n), getattr(other, n)) for n in names)
        return same and self.grid == other.grid

    def _with(self, other: GridStatistics, sign: int) -> GridStatistics:
        if self.grid != other.grid or self.num_classes != other.num_classes:
            raise StatisticsError(
                f"statistics of {self.num_classes} classes in {self.grid.dim} "
                f"dimensions and of {other.num_classes} classes in {other.grid.dim} "
                "dimensions cannot be combined, because the numbers or the grids differ"
            )
        low = self.low + sign * other.low
        return GridStatistics(
            self.grid,
            self.counts + sign * other.counts,
            self.sums + sign * other.sums,
            self.high + sign * other.high + (low >> _LOW),
            low & (2**_LOW - 1),
        )

    def padded(self, num_classes: int) -> GridStatistics:
        """The statistics for `num_classes` classes; the added classes have no rows."""
        more = num_classes - self.num_classes
        counts = np.pad(self.counts, (0, more))
        return replace(self, counts=counts, sums=np.pad(self.sums, ((0, more), (0, 0))))

    def digest(self, salt: bytes) -> str:
        """SHA-256 of the statistics with `salt`, in hex. It ignores empty classes."""
        hashed = hashlib.sha256(salt)
        for part in (np.array(self.grid.exponents), *self.arrays().values()):
            hashed.update(np.ascontiguousarray(part, dtype="<i8").tobytes())
        return hashed.hexdigest()

    def arrays(self) -> dict[str, np.ndarray]:
        """The numbers by name, without the classes that have no rows."""
        held = np.array(self.classes, dtype=np.int64)
        return {
            "classes": held,
            "counts": self.counts[held],
            "sums": self.sums[held],
            "high": self.high,
            "low": self.low,
        }

    @classmethod
    def of_arrays(
        cls, num_classes: int, grid: Grid, arrays: Mapping[str, np.ndarray]
    ) -> GridStatistics:
        """Make the statistics again from the result of `arrays`."""
        counts = np.zeros(num_classes, dtype=np.int64)
        sums = np.zeros((num_classes, grid.dim), dtype=np.int64)
        counts[arrays["classes"]] = arrays["counts"]
        sums[arrays["classes"]] = arrays["sums"]
        return cls(grid, counts, sums, arrays["high"], arrays["low"])

    def statistics(self) -> Statistics:
        """The statistics as floats.

        They depend on the integers of this object alone. The scatter is centred before
        it is rounded, so rows may lie far from zero.
        """
        rows, total = int(self.counts.sum()), self.sums.sum(axis=0)
        upper, parts = _upper(self.grid.dim), self._floats()
        origin = np.zeros_like(total)
        if self._lies_far(total / max(rows, 1)):
            origin = _coarse(total / rows)
            # Small enough to be exact in float64, and so are products with `origin`.
            rest, o = (total - rows * origin).astype(float), origin.astype(float)
            for i, j in (upper, upper[::-1]):
                parts += _product(-o[i], rest[j])
            parts += _product(-o[upper[0]] * o[upper[1]], np.float64(rows))
        second, o = _added(parts), origin.astype(float)
        scatter = np.zeros((self.grid.dim, self.grid.dim))
        scatter[upper] = scatter[upper[::-1]] = second
        offsets = (self.sums - self.counts[:, None] * origin).astype(float)
        shares = offsets / np.maximum(self.counts, 1)[:, None]
        scatter -= _times(shares, offsets)
        steps = np.ldexp(1.0, self.grid.exponents)
        scatter *= steps[:, None]
        scatter *= steps
        held = torch.from_numpy(self.counts.copy())
        start = torch.from_numpy(o * steps).expand(self.sums.shape)
        step = torch.from_numpy(shares * steps)
        high, low = add_to_mean(start, torch.zeros_like(step), step)
        none = (held == 0)[:, None]
        means = Means(held, high.masked_fill(none, 0), low.masked_fill(none, 0))
        within = Scatter.from_dense(torch.from_numpy(scatter))
        return Statistics(means, {ALL: within}, "pooled")

    def _lies_far(self, mean: np.ndarray) -> bool:
        """Whether the rows lie so far from zero that float64 would lose ten bits."""
        i, j = _upper(self.grid.dim)
        squares = self.high[i == j] * 2.0**_LOW + self.low[i == j]
        spread = squares - float(self.counts.sum()) * mean * mean
        return bool((spread < squares / 2**10).any())

    def _floats(self) -> list[np.ndarray]:
        """Four float64 arrays whose exact sum is the second moment."""
        half, mask = 2**30, 2**30 - 1
        return [
            (self.high >> 30).astype(float) * 2.0 ** (_LOW + 30),
            (self.high & mask).astype(float) * 2.0**_LOW,
            (self.low >> 30).astype(float) * half,
            (self.low & mask).astype(float),
        ]


def _second_moment(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The upper triangle of ``Z^T Z`` for numbers Z [n, D], as high and low part."""
    mask, upper = 2**_DIGIT - 1, _upper(numbers.shape[1])
    digits = [numbers & mask, (numbers >> _DIGIT) & mask, numbers >> 2 * _DIGIT]
    a, b, c = (digit.astype(float) for digit in digits)

    def both(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        product = _times(left, right)
        return product + product.T

    outer, middle = _times(b, b) + both(a, c), both(b, c)
    planes = (_times(a, a), both(a, b), outer, middle, _times(c, c))
    carry = low = np.zeros(len(upper[0]), dtype=np.int64)
    for place, plane in enumerate(planes[:-1]):
        carry = plane[upper].astype(np.int64) + carry
        low = low + ((carry & mask) << (_DIGIT * place))
        carry = carry >> _DIGIT
    return planes[-1][upper].astype(np.int64) + carry, low


def _times(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The product ``left^T right``, by torch.

    torch uses the number of threads that engines set.
    """
    return (torch.from_numpy(left).T @ torch.from_numpy(right)).numpy()


@lru_cache(maxsize=4)
def _upper(dim: int) -> tuple[np.ndarray, np.ndarray]:
    return np.triu_indices(dim)


def _coarse(values: np.ndarray) -> np.ndarray:
    """Round `values` to whole numbers that have at most 20 significant bits: int64."""
    share, exponent = np.frexp(values)
    return np.rint(np.ldexp(np.rint(np.ldexp(share, 20)), exponent - 20)).astype(
        np.int64
    )


def _product(a: np.ndarray, b: np.ndarray | np.float64) -> list[np.ndarray]:
    """The exact product ``a * b``, as two numbers to be added (Dekker, 1971)."""

    def halves(x):
        big = x * (2.0**27 + 1)
        top = big - (big - x)
        return top, x - top

    product = a * b
    (a1, a2), (b1, b2) = halves(a), halves(b)
    return [product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2]


def _added(terms: list[np.ndarray]) -> np.ndarray:
    """The sum of `terms`, computed with twice the precision of float64 (Knuth)."""
    high = low = np.zeros_like(terms[0])
    for term in terms:
        total = high + term
        back = total - high
        low = low + ((high - (total - back)) + (term - back))
        high = total
    return high + low
