"""Rules for how many rows of a class an augmented set has, one for each source.

The rules differ if a class has more own rows than its set size. A rule that cuts keeps
all own rows if they fit, and fills the other places with new rows chosen at random. If
the own rows do not all fit, a random choice of them stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union


def share_of(rows: int, share: float) -> int:
    """`share` of a class's rows, rounded to whole rows; at least one if the class has
    any."""
    return max(min(rows, 1), round(share * rows))


@dataclass(frozen=True)
class TotalSizes:
    """The paper's rule (Sections 3.2.1 and 3.2.2): a total number of rows for each
    class.

    A class with more own rows than `step1` keeps them all, and step 1 adds none. The
    code published for label skew does the same.

    Attributes
    ----------
    step1 : int
        Own rows and new rows of step 1 together.
    step2 : int
        New rows for each prototype.
    """

    step1: int
    step2: int

    def around_samples(self, n: int) -> int:
        return max(0, self.step1 - n) if n else 0

    def around_prototype(self) -> int:
        return self.step2

    def kept(self, rows: int) -> int:
        return rows


@dataclass(frozen=True)
class ReleaseSizes:
    """The rule of the published code for domain skew: a fixed number of new rows, then
    a cut.

    A class with many own rows gets as many new rows as any other. There is one
    difference: if a class has no own rows, the published code keeps only the rows of
    the first prototypes. Here the cut is random for such a class as well.

    Attributes
    ----------
    step1 : int
        The number of new rows of step 1, which does not depend on the class's own rows.
    step2 : int
        New rows for each prototype.
    target : int
        Rows that the cut leaves, own rows included.
    """

    step1: int
    step2: int
    target: int

    def around_samples(self, n: int) -> int:
        return self.step1 if n else 0

    def around_prototype(self) -> int:
        return self.step2

    def kept(self, rows: int) -> int:
        return min(rows, self.target)


@dataclass(frozen=True)
class PerAnchorSizes:
    """The plugin document's rule: a number of new rows for each anchor, then a cut.

    Attributes
    ----------
    per_sample : int
        New rows around each own embedding (`num_generated_per_sample`).
    per_prototype : int
        New rows around each prototype (`num_generated_per_prototype`).
    target : int or None
        Rows of a class that the cut leaves, own rows included
        (`target_size_per_class`). None means no cut.
    """

    per_sample: int
    per_prototype: int
    target: int | None = None

    def around_samples(self, n: int) -> int:
        return n * self.per_sample

    def around_prototype(self) -> int:
        return self.per_prototype

    def kept(self, rows: int) -> int:
        return rows if self.target is None else min(rows, self.target)


Sizes = Union[TotalSizes, ReleaseSizes, PerAnchorSizes]
