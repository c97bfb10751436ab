"""Sums over rows that were summed before: what passes is the same sum again, or of rows
none of which was in an earlier one.

Tests of exchanges/secure_sums/rosters.py, too.
"""

import tempfile
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.linalg import matrix_rank
from sums_of import DIM, NAMES, SESSION, SETTINGS, Sum, clients_of, rows

from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.extras.secure_sums.trust import tells_of_few

OTHER = SESSION[::-1]
CLIENTS = (1, 2, 3)


class TestSubtraction:
    """What a server does that has two sums: the one less the other is a row."""

    @pytest.mark.parametrize(
        ("names", "changes"),
        # Who owns nearly all is asked by the number of classes: another answer.
        [((*NAMES[:5], "new"), {}), (NAMES[:5], {"min_samples": 2})],
    )
    def test_with_other_settings_is_refused(self, tmp_path, names, changes):
        clients = clients_of()
        own = replace(SETTINGS, store=str(tmp_path), min_samples=1)
        Sum(clients, own).run()
        now = replace(own, num_classes=len(names), class_names=names, **changes)
        said = "with another threshold, .* or number of classes"
        with pytest.raises(MessageError, match=said):
            Sum(clients, now, session=OTHER, generation=1).keys()

    def test_a_server_cannot_say_that_rows_are_the_same(self, tmp_path):
        clients = clients_of()
        own = replace(SETTINGS, store=str(tmp_path))
        one = Sum(clients, own)
        one.run()
        new = {**clients, 1: rows(99, 12)}
        again = Sum(new, own, session=OTHER, generation=1).keys()
        before = one.collector.request("counts").commitments
        request = replace(again.collector.request("counts"), commitments=before)
        with pytest.raises(MessageError, match="changed the commitment of client 1"):
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


#: Rows of each client, by number, with the names of their classes.
FIRST = {
    1: [(0, "ant"), (1, "bee"), (2, "bee")],
    2: [(0, "ant"), (1, "ant"), (2, "cat")],
    3: [(0, "cat"), (1, "bee"), (2, "ant")],
}
#: What a client may hold in the place of them.
OTHERS = {
    "the same": lambda held: held,
    "rows in another order": lambda held: held[::-1],
    "relabelled": lambda held: [(0, "bee"), *held[1:]],
    "labels swapped": lambda held: [(0, held[2][1]), held[1], (2, held[0][1])],
    "a row more": lambda held: [*held, (3, "ant")],
    "a row less": lambda held: held[1:],
    "a row twice": lambda held: [*held, held[0]],
    "new rows": lambda held: [(row + 4, name) for row, name in held],
}
#: What all call the four classes.
CALLED = {
    "the same": {name: name for name in NAMES[:4]},
    "in another order": {name: name for name in NAMES[3::-1]},
    "another one in front": {"a": "a", **{name: name for name in NAMES[:3]}},
    "renamed": {name: f"{name}." for name in NAMES[:4]},
}
SUMS = st.tuples(st.sampled_from([*CALLED]), *[st.sampled_from([*OTHERS])] * 3)


def tensors(k, held, names):
    """Features and labels."""
    x = [np.random.default_rng([k, row]).uniform(-0.4, 0.4, DIM) for row, _ in held]
    y = [names.index(name) for _, name in held]
    return torch.tensor(np.array(x), dtype=torch.float32), torch.tensor(y)


def ask_in_turn(sums):
    """By a plain oracle: a client refuses where its rows overlap those of an earlier
    sum that it answered, unless all clients have the same rows of the same classes."""
    answered = {k: [] for k in CLIENTS}
    with tempfile.TemporaryDirectory() as folder:
        own = replace(SETTINGS, num_classes=4, min_samples=1, store=folder)
        for i, (called, *whats) in enumerate([("the same",) * 4, *sums]):
            names = tuple(CALLED[called].values())
            held = {
                k: [(row, CALLED[called][c]) for row, c in OTHERS[what](FIRST[k])]
                for k, what in zip(CLIENTS, whats)
            }
            clients = {k: tensors(k, rows, names) for k, rows in held.items()}
            now = replace(own, class_names=names)
            one = Sum(clients, now, session=bytes([i] * 16), generation=i)
            # Of each earlier sum with some of a client's rows, whose rows are others.
            differ = {
                k: [
                    {j for j in CLIENTS if sorted(past[j]) != sorted(held[j])}
                    for past in answered[k]
                    if {row for row, _ in past[k]} & {row for row, _ in held[k]}
                ]
                for k in CLIENTS
            }
            if any(k in others for k in CLIENTS for others in differ[k]):
                with pytest.raises(MessageError, match="overlap"):
                    one.keys()
                continue
            request = one.keys().collector.request("counts")
            for k in CLIENTS:
                if any(differ[k]):
                    with pytest.raises(MessageError, match="have other rows"):
                        one.participants[k].masked(request)
                    continue
                one.collector.add([one.participants[k].masked(request)])
                answered[k].append(held)


@pytest.mark.parametrize("called", CALLED)
@pytest.mark.parametrize("what", OTHERS)
def test_a_sum_after_one_change_tells_nothing_by_differences(called, what):
    ask_in_turn([(called, "the same", what, "the same")])


@examples(20)
@given(st.lists(SUMS, min_size=2, max_size=5))
def test_nor_does_any_sequence_of_sums(sums):
    ask_in_turn(sums)


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
    return matrix_rank(rows[:, places]) < len(rows)


rosters = st.lists(st.sets(st.integers(0, 6), min_size=1), min_size=1, max_size=4)


@given(rosters, st.integers(1, 4))
@example([{0, 1, 2}, {0, 3, 4, 5}], 3)
def test_against_all_sets_of_clients(sets, least):
    every = np.array([[k in one for k in range(7)] for one in sets], dtype=float)
    rows = every[:0]
    for row in every:
        more = np.vstack([rows, row])
        rows = more if matrix_rank(more) == len(more) else rows
    wanted = any(
        reaches_zero(rows, [k for k in range(7) if k not in few])
        for size in range(least)
        for few in combinations(range(7), size)
    )
    assert tells_of_few(sets, least) == wanted


def test_a_search_that_is_too_long_is_no_proof(monkeypatch):
    for most, tells in ((3, False), (2, True)):  # of three sets of clients
        monkeypatch.setattr(f"{tells_of_few.__module__}.MOST_SETS", most)
        assert tells_of_few([{0, 1, 2}, {0, 3, 4, 5}], 3) is tells
