"""Which sums over several rosters tell of few clients.

Whoever has the sums of several rosters has all their rational combinations. A
combination tells of the clients whose weight in it is not zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from fractions import Fraction
from itertools import combinations

#: More sets of clients are not gone through: such rosters are refused.
MOST_SETS = 20_000


def tells_of_few(rosters: Sequence[Collection[Hashable]], least: int) -> bool:
    """Whether a combination of the sums of `rosters` tells of fewer than `least`.

    Exact: the rational span of the rosters' 0-1 vectors has a nonzero vector with fewer
    than `least` nonzero entries. True, too, if that takes too long to find out.

    Notes
    -----
    A vector of the span has equal entries for clients that are in the same rosters.
    Such a set of clients is all of a combination or none of it. There is a nonzero
    vector within the sets T if the rosters have a smaller rank without T.
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
    """The rank over the rationals."""
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
