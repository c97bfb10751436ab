"""How many rows of a class an augmented set has: a rule for each source.

They differ in what they do to a class that has more rows of its own than its size.
Where a rule cuts, own rows stay while they fit, and new ones at random fill the places
left; if not all fit, the own rows that stay are drawn at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True)
class TotalSizes:
    """The paper's rule (Sections 3.2.1 and 3.2.2): totals for each class.

    A class with more rows than `step1` keeps them all, and step 1 adds none. So does
    the code published for label skew.

    Attributes
    ----------
    step1 : int
        Originals and new rows of step 1 together.
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
    """The rule of the code published for domain skew: so many new rows, then a cut.

    A class with many rows gets as many new ones as any other. That code takes a class
    without rows of its own from the first prototypes' rows alone; here they are cut at
    random, too.

    Attributes
    ----------
    step1 : int
        New rows of step 1 in all, however many the class has of its own.
    step2 : int
        New rows for each prototype.
    target : int
        Rows that the cut leaves, originals included.
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
    """The plugin document's rule: new rows for each anchor, then a cut.

    Attributes
    ----------
    per_sample : int
        New rows around each embedding (`num_generated_per_sample`).
    per_prototype : int
        New rows around each prototype (`num_generated_per_prototype`).
    target : int or None
        Rows of a class that the cut leaves, originals included
        (`target_size_per_class`); None for no cut.
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
