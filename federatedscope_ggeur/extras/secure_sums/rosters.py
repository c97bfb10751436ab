"""Decides whether sums over several rosters together reveal few clients.

Whoever has the sums of several rosters can compute all their rational combinations. A
combination reveals a weighted sum over the clients whose weight is not zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from fractions import Fraction
from itertools import combinations

#: If the search needs more sets of clients, the rosters are refused.
MOST_SETS = 20_000


def tells_of_few(rosters: Sequence[Collection[Hashable]], least: int) -> bool:
    """Whether some combination of the rosters' sums covers fewer than `least` clients.

    The test is exact: it looks for a nonzero vector with fewer than `least` nonzero
    entries in the rational span of the rosters' 0-1 vectors. The result is also True if
    the search would take too long.

    Notes
    -----
    A vector of the span has equal entries for clients that are in the same rosters. A
    combination contains all or none of these clients. The span has a nonzero vector
    that is zero outside a set T of clients if the rosters have a smaller rank without
    T.
    """
    everyone = sorted({k for roster in rosters for k in roster}, key=repr)
    columns = Counter(tuple(k in roster for roster in rosters) for k in everyone)
    few = [column for column, size in columns.items() if size < least]
    whole, tried = _rank(list(columns)), 0
    for size in range(1, least):
        for part in combinations(few, size):
            tried += 1
            if tried > MOST_SETS:
                return True
            if sum(columns[column] for column in part) >= least:
                continue
            if _rank([c for c in columns if c not in part]) < whole:
                return True
    return False


def _rank(rows: Sequence[Sequence[int]]) -> int:
    """The rank of a matrix over the rational numbers."""
    left, rank = [[Fraction(x) for x in row] for row in rows], 0
    while left:
        row = left.pop()
        place = next((i for i, x in enumerate(row) if x), None)
        if place is None:
            continue
        rank += 1
        for other in left:
            if other[place]:
                share = other[place] / row[place]
                other[:] = [a - share * b for a, b in zip(other, row)]
    return rank
