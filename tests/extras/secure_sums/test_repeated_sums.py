"""Sums over rows that were summed before: what passes is the same sum again, or of rows
none of which was in an earlier one.

Tests of exchanges/secure_sums/rosters.py, too.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from sums_of import DIM, NAMES, SESSION, SETTINGS, Sum, clients_of, rows

from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.extras.secure_sums.trust import tells_of_few

OTHER = SESSION[::-1]
CLIENTS = (1, 2, 3)


def second_sum(first, second, folder, names=NAMES[:5], **changes):
    """A sum of `first` with the classes of SETTINGS, then one of `second` with `names`
    and other changes of settings; both, as far as they come."""
    own = replace(SETTINGS, store=str(folder), min_samples=1)
    one = Sum(first, own)
    one.run()
    now = replace(own, num_classes=len(names), class_names=names, **changes)
    again = Sum(second, now, session=OTHER, generation=1)
    again.run()
    return one, again


class TestSubtraction:
    """What a server does that has two sums: the one less the other is a row."""

    @pytest.mark.parametrize(
        ("names", "changes"),
        # Who owns nearly all is asked by the number of classes: another answer.
        [((*NAMES[:5], "new"), {}), (NAMES[:5], {"min_samples": 2})],
    )
    def test_with_other_settings_is_refused(self, tmp_path, names, changes):
        clients = clients_of()
        said = "with another threshold, .* or number of classes"
        with pytest.raises(MessageError, match=said):
            second_sum(clients, clients, tmp_path, names, **changes)

    def test_a_server_cannot_say_that_rows_are_the_same(self, tmp_path):
        clients = clients_of()
        own = replace(SETTINGS, store=str(tmp_path))
        one = Sum(clients, own)
        one.run()
        new = {**clients, 1: rows(99, 12)}
        again = Sum(new, own, session=OTHER, generation=1).keys()
        before = one.collector.request("counts").commitments
        request = replace(again.collector.request("counts"), commitments=before)
        with pytest.raises(
            MessageError, match="has changed the commitment of client 1"
        ):
            again.participants[1].masked(request)
        # Told so to the others alone, their masks do not cancel client 1's.
        again.tamper = lambda stage, k, asked: asked if k == 1 else request
        with pytest.raises(GGEURError, match="stage 'counts' is impossible"):
            again.stage("counts")


class TestAnotherRoster:
    """Of clients of 9 rows each: their numbers, or their rows, change."""

    def asked(self, folder, *rosters, first="counts", **settings):
        """A sum of each roster after the other, up to the stage of counts; the first
        one may end with its keys."""
        everyone = clients_of(sizes=(9,) * 8)
        own = replace(SETTINGS, store=str(folder), **settings)
        for i, roster in enumerate(rosters):
            held = {k: everyone[k] for k in roster}
            one = Sum(held, own, session=bytes([i] * 16), generation=i).keys()
            if i or first == "counts":
                one.stage("counts")

    def test_is_refused_unless_the_settings_allow_it(self, tmp_path):
        with pytest.raises(MessageError, match="secure_sums_new_roster"):
            self.asked(tmp_path, (1, 2, 3), (1, 2, 3, 4))

    def test_may_be_where_keys_alone_were_sent(self, tmp_path):
        self.asked(tmp_path, (1, 2, 3), (1, 2, 3, 4), first="keys")

    @pytest.mark.parametrize("more", [1, 2, 3])
    def test_has_three_clients_more_at_least(self, tmp_path, more):
        rosters = (1, 2, 3), range(1, 4 + more)
        if more == 3:
            self.asked(tmp_path, *rosters, new_roster=True)
            return
        with pytest.raises(MessageError, match="fewer than 3 clients"):
            self.asked(tmp_path, *rosters, new_roster=True)

    def test_is_compared_with_all_before_that_ended_early_too(self, tmp_path):
        """Of the last roster the second one says nothing; client 5 left the first."""
        rosters = (1, 2, 3, 4, 5), range(1, 9), (1, 2, 3, 4)
        with pytest.raises(MessageError, match=r"clients \[5\] left since"):
            self.asked(tmp_path, *rosters, new_roster=True)

    @pytest.mark.parametrize(("least", "allowed"), [(4, False), (3, True)])
    def test_new_rows_of_three_clients_may_be_allowed(self, tmp_path, least, allowed):
        clients = clients_of(sizes=(9, 9, 9, 9))
        new = {k: rows(90 + k, 9) for k in (2, 3, 4)}
        own = replace(SETTINGS, new_roster=True, min_clients=least, store=str(tmp_path))
        Sum(clients, own).run()
        again = Sum({**clients, **new}, own, session=OTHER, generation=1).keys()
        if allowed:
            again.stage("counts")
            return
        with pytest.raises(MessageError, match="fewer than 4 clients"):
            again.stage("counts")


class TestTheSameSum:
    """The same rows of the same classes are summed again, whatever their order."""

    def test_in_another_order_of_rows_and_classes(self, tmp_path):
        clients = clients_of()
        back = {k: (x.flip(0), (4 - y).flip(0)) for k, (x, y) in clients.items()}
        one, again = second_sum(clients, back, tmp_path, NAMES[:5][::-1])
        first, second = (s.collector.summed().statistics for s in (one, again))
        assert torch.equal(second.counts.flip(0), first.counts)
        torch.testing.assert_close(second.means.flip(0), first.means)
        torch.testing.assert_close(second.scatter(), first.scatter())

    @pytest.mark.parametrize("change", ["rows", "labels", "classes", "settings"])
    def test_goes_not_on_with_other_rows_between_stages(self, tmp_path, change):
        own, clients = replace(SETTINGS, store=str(tmp_path)), clients_of()
        one = Sum(clients, own).keys().stage("counts")
        x, y = clients[2]
        if change == "rows":
            clients = {**clients, 2: (rows(77, len(y))[0], y)}
        elif change == "labels":
            clients = {**clients, 2: (x, (y + 1) % 5)}
        elif change == "classes":
            own = replace(own, class_names=NAMES[:5][::-1])
            clients = {**clients, 2: (x, 4 - y)}
        else:
            own = replace(own, max_rows=2**15)
        one.participants[2] = Sum(clients, own, generation=5).participants[2]
        said = "have changed since it began this session"
        for ask in (lambda: one.stage("means"), one.keys):
            with pytest.raises(MessageError, match=said):
                ask()

    def test_is_of_classes_that_have_names_of_their_own(self):
        with pytest.raises(GGEURError, match="two classes have the same name"):
            Sum(clients_of(), replace(SETTINGS, class_names=("a", "b", "c", "d", "a")))

    def test_is_refused_at_once_where_one_client_has_too_many_rows(self):
        one = Sum(clients_of(sizes=(21, 4, 4)), replace(SETTINGS, max_rows=20))
        with pytest.raises(GGEURError, match="has more rows than"):
            one.keys()


@dataclass(frozen=True)
class Held:
    """What clients hold: rows by number, each with its class's name."""

    names: tuple[str, ...]
    rows: dict[int, tuple[tuple[int, str], ...]]

    def of(self, k: int) -> Counter:
        return Counter(self.rows[k])

    def tensors(self):
        """Client number -> (features, labels)."""
        return {k: self._tensors(k) for k in self.rows}

    def _tensors(self, k):
        x = [
            np.random.default_rng([k, row]).uniform(-0.4, 0.4, DIM)
            for row, _ in self.rows[k]
        ]
        y = [self.names.index(name) for _, name in self.rows[k]]
        return torch.tensor(np.array(x), dtype=torch.float32), torch.tensor(y)

    def overlaps(self, k: int, other: Held) -> bool:
        mine, theirs = ({row for row, _ in one.rows[k]} for one in (self, other))
        return bool(mine & theirs)


def change(held: Held, what: str, k: int, fresh: int) -> Held:
    """Another federation; `fresh` is the number of a row that none had."""
    own, names = held.rows[k], held.names
    if what == "rows in another order":
        own = own[::-1]
    elif what == "classes in another order":
        names = (*names[1:], names[0])
    elif what == "a name put in front":  # in place of one that has no rows
        used = {name for some in held.rows.values() for _, name in some}
        if names[-1] not in used:
            names = (f"a{fresh}", *names[:-1])
    elif what == "renamed":
        renamed = {name: f"{name}." for name in names}
        every = {
            j: tuple((row, renamed[name]) for row, name in some)
            for j, some in held.rows.items()
        }
        return Held(tuple(renamed.values()), every)
    elif what == "relabelled":
        row, name = own[0]
        own = ((row, names[(names.index(name) + 1) % len(names)]), *own[1:])
    elif what == "labels swapped":
        (one, first), (two, last) = own[0], own[-1]
        own = ((one, last), *own[1:-1], (two, first))
    elif what == "a row more":
        own = (*own, (fresh, names[0]))
    elif what == "a row less":
        own = own[1:] if len(own) > 2 else own
    elif what == "a row twice":
        own = (*own, own[0])
    elif what == "new rows":
        own = tuple((fresh + i, name) for i, (_, name) in enumerate(own))
    else:
        assert what == "new rows everywhere"
        every = {
            j: tuple((fresh + i, name) for i, (_, name) in enumerate(some))
            for j, some in held.rows.items()
        }
        return Held(names, every)
    return Held(names, {**held.rows, k: own})


CHANGES = (
    *("rows in another order", "classes in another order", "a name put in front"),
    *("renamed", "relabelled", "labels swapped", "a row more", "a row less"),
    *("a row twice", "new rows", "new rows everywhere"),
)
FIRST = Held(
    NAMES[:4],
    {
        1: ((0, "ant"), (1, "bee"), (2, "bee")),
        2: ((0, "ant"), (1, "ant"), (2, "cat")),
        3: ((0, "cat"), (1, "bee"), (2, "ant")),
    },
)
STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.lists(
            st.tuples(st.sampled_from(CHANGES), st.sampled_from(CLIENTS)), max_size=2
        ),
    ),
    min_size=1,
    max_size=4,
)


def ask_in_turn(steps):
    """Each sum is the first, or one that was asked for before, with some changes. By a
    plain oracle: a client refuses where its rows overlap those of an earlier sum that
    it answered, unless all clients have the same rows of the same classes."""
    asked = [FIRST]
    answered: dict[int, list[Held]] = {k: [] for k in CLIENTS}
    with tempfile.TemporaryDirectory() as folder:
        own = replace(SETTINGS, num_classes=4, min_samples=1, store=folder)
        for i, (back, changes) in enumerate([(0, []), *steps]):
            held = asked[max(0, len(asked) - 1 - back)]
            for j, (what, k) in enumerate(changes):
                held = change(held, what, k, fresh=1000 * (i + 1) + 100 * j)
            asked.append(held)
            now = replace(own, class_names=held.names)
            one = Sum(held.tensors(), now, session=bytes([i] * 16), generation=i)
            before = {
                k: [past for past in answered[k] if held.overlaps(k, past)]
                for k in CLIENTS
            }
            refuses_own = {
                k
                for k, past in before.items()
                if any(one_.of(k) != held.of(k) for one_ in past)
            }
            if refuses_own:
                with pytest.raises(MessageError, match="overlap"):
                    one.keys()
                continue
            one.keys()
            request = one.collector.request("counts")
            for k in CLIENTS:
                differs = any(
                    past.of(j) != held.of(j) for past in before[k] for j in CLIENTS
                )
                if differs:
                    with pytest.raises(MessageError, match="have other rows"):
                        one.participants[k].masked(request)
                    continue
                one.collector.add([one.participants[k].masked(request)])
                answered[k].append(held)


@pytest.mark.parametrize("what", CHANGES)
def test_a_sum_after_one_change_tells_nothing_by_differences(what):
    ask_in_turn([(0, [(what, 2)])])


@examples(15)
@given(steps=STEPS)
def test_nor_does_any_sequence_of_sums(steps):
    ask_in_turn(steps)


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
