"""Rosters whose sums, taken together, tell of few clients."""

from fractions import Fraction
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from federatedscope_ggeur.federation.exchanges.secure_sums.rosters import tells_of_few

EVERYONE = range(13)
#: The lines of the projective plane of order 3: a difference set modulo 13.
LINES = [{(k + shift) % 13 for k in (0, 1, 3, 9)} for shift in EVERYONE]


def omitting(lines):
    return [set(EVERYONE) - line for line in lines]


def test_the_plane_of_order_three():
    """Each two rosters differ by three clients on either side, and yet five sums give
    one client away: the lines through a point, and the sum of all."""
    through = [line for line in LINES if 0 in line]
    rosters = [set(EVERYONE), *omitting(through)]
    for one, other in combinations(omitting(LINES), 2):
        assert len(one - other) == len(other - one) == 3
    assert tells_of_few(rosters, 3)
    # The four lines cover every other client once and client 0 four times.
    weights = [sum(k in line for line in through) - 1 for k in EVERYONE]
    assert [k for k, weight in enumerate(weights) if weight] == [0]
    assert tells_of_few(omitting(LINES), 3)
    assert not tells_of_few(omitting(LINES[:2]), 3)
    assert not tells_of_few(omitting(LINES[:1]) * 3, 3)


def reaches_zero(rows, places):
    """Whether a nonzero combination of independent rows is zero at all `places`."""
    return rank([[row[i] for i in places] for row in rows]) < len(rows)


def rank(rows):
    found = []
    for row in rows:
        row = [Fraction(x) for x in row]
        for lead, other in found:
            row = [a - row[lead] * b for a, b in zip(row, other)]
        lead = next((i for i, x in enumerate(row) if x), None)
        if lead is not None:
            found.append((lead, [x / row[lead] for x in row]))
    return len(found)


rosters = st.lists(st.sets(st.integers(0, 6), min_size=1), min_size=1, max_size=4)


@given(rosters, st.integers(1, 4))
def test_against_all_sets_of_clients(sets, least):
    rows = []
    for one in sets:
        row = [int(k in one) for k in range(7)]
        if rank([*rows, row]) > len(rows):
            rows.append(row)
    wanted = any(
        reaches_zero(rows, [k for k in range(7) if k not in few])
        for size in range(least)
        for few in combinations(range(7), size)
    )
    assert tells_of_few(sets, least) == wanted
