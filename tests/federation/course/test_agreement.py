"""What all sides have alike is said by the server or by most clients, never the first.

Tests of federation/course/membership.py, too: who is put out for it, and for answers
that are late again and again.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from carrier import after_round_0, late

from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.federation.course.membership import Membership
from federatedscope_ggeur.federation.wire.handshake import Handshake, Join
from federatedscope_ggeur.federation.wire.schema import Declared

SETTINGS = {"seed": "0"}
TRUE = Handshake(("cat", "dog"), 16, "clip", SETTINGS)
FALSE = replace(TRUE, dim=2**40)
CLIENTS = 4


def join(
    members: Membership,
    number: int,
    handshake: Handshake = TRUE,
    domain: str = "art",
    declared: Declared | None = None,
) -> dict:
    return members.admit(Join(handshake, declared or Declared(7), number, domain))


@pytest.fixture
def members() -> Membership:
    return Membership(CLIENTS, None, SETTINGS)


def test_the_first_decides_nothing(members):
    assert join(members, 1, FALSE) == {}
    assert members.handshake is None
    assert join(members, 2) == join(members, 3) == {}
    assert members.handshake is None
    refused = join(members, 4)
    assert members.handshake == TRUE
    assert list(refused) == [1]
    assert str(refused[1]) == (
        "message from client 1 refused: field 'handshake': dim is 1099511627776 there "
        "and 16 here (at most clients); this must be the same on all sides"
    )
    assert list(members.joined) == [2, 3, 4]
    assert not members.complete
    join(members, 1)
    assert members.complete


def test_once_it_is_settled_others_are_refused_at_once(members):
    for number in (1, 2, 3):
        join(members, number)
    with pytest.raises(MessageError, match=r"class 1 is 'cow' there and 'dog' here"):
        join(members, 4, replace(TRUE, class_names=("cat", "cow")))
    assert list(members.joined) == [1, 2, 3]


def test_the_servers_own_decides():
    members = Membership(CLIENTS, None, SETTINGS, TRUE)
    with pytest.raises(MessageError, match=r"dim is 1099511627776 .*\(at the server\)"):
        join(members, 1, FALSE)
    assert join(members, 2) == {}
    assert members.handshake == TRUE


@pytest.mark.parametrize(
    ("field", "given", "other", "problem"),
    [
        ("dim", 16, 2**40, "dim is 1099511627776 there and 16 here"),
        ("class_names", ("a", "b"), ("a", "c"), "class 1 is 'c' there and 'b' here"),
        ("encoder", "none", "of lies", "encoder is 'of lies' there and 'none' here"),
        ("settings", SETTINGS, {"seed": "7"}, "seed is '7' there and '0' here"),
    ],
)
def test_what_the_server_was_given_decides_at_once(field, given, other, problem):
    own = {} if field == "settings" else {field: given}
    members = Membership(CLIENTS, None, SETTINGS, given=own)
    honest = replace(TRUE, **{field: given})
    with pytest.raises(MessageError, match=problem):
        join(members, 1, replace(honest, **{field: other}))
    assert not members.joined
    for number in (2, 3, 4):
        join(members, number, honest)
    assert members.handshake == honest


def test_at_the_deadline_most_of_those_that_are_there_decide():
    members = Membership(10, 2, SETTINGS)
    join(members, 1, FALSE)
    for number in (2, 3):
        join(members, number)
    assert members.handshake is None
    assert list(members.close(5.0)) == [1]
    assert members.handshake == TRUE
    assert list(members.joined) == [2, 3]
    standing = members.standing()
    assert standing["1"].startswith("lost: message from client 1 refused")
    assert standing["2"] == "here"
    assert standing["4"] == "missing"
    assert members.complete


def test_too_few_that_agree_are_an_error():
    members = Membership(10, 3, SETTINGS)
    join(members, 1, FALSE)
    for number in (2, 3):
        join(members, number)
    with pytest.raises(GGEURError, match=r"clients \[2, 3\] agree; clients \[1\]: dim"):
        members.close(5.0)


def test_one_that_is_put_out_leaves_a_majority_of_the_others(members):
    join(members, 1, FALSE)
    join(members, 2)
    join(members, 3)
    assert members.handshake is None
    assert list(members.put_out(4)) == [1]
    assert members.handshake == TRUE
    assert not members.complete
    assert members.put_out(1) == {}
    assert members.complete


def test_who_is_left_may_be_too_few_or_of_two_minds():
    members = Membership(CLIENTS, 2, SETTINGS)
    join(members, 1)
    members.put_out(2)
    members.put_out(3)
    with pytest.raises(GGEURError, match=r"clients \[1\] have joined .* needs 2"):
        members.put_out(4)
    members = Membership(CLIENTS, 2, SETTINGS)
    join(members, 1)
    join(members, 2, FALSE)
    members.put_out(3)
    with pytest.raises(GGEURError, match="describe their data differently"):
        members.put_out(4)


def test_where_all_are_put_out_nobody_is_waited_for(members):
    for number in range(1, CLIENTS + 1):
        members.check_all_left()
        members.put_out(number)
    with pytest.raises(GGEURError, match="all clients were put out"):
        members.check_all_left()


def test_what_a_lost_client_said_no_longer_counts(members):
    for number in (1, 2, 3):
        join(members, number, FALSE)
    assert members.handshake == FALSE
    members.lose(2, "gone")
    assert members.handshake is None


def test_two_sides_of_the_same_size_are_an_error(members):
    for number in (1, 2):
        join(members, number, FALSE)
    join(members, 3)
    with pytest.raises(GGEURError, match=r"\[1, 2\] agree; clients \[3, 4\]: dim is"):
        join(members, 4)


def test_joining_again_forgives_nothing():
    members = Membership(CLIENTS, 2, SETTINGS, TRUE)
    join(members, 3)
    for _ in range(3):
        members.conduct.strike(3, "junk")
    members.lose(3, "dismissed")
    with pytest.raises(MessageError, match="has barred this client: barred after 3"):
        join(members, 3)


def test_where_a_number_proves_nothing_the_next_one_begins_anew():
    members = Membership(CLIENTS, 2, SETTINGS, TRUE, proven=False)
    join(members, 3, domain="moon")
    for _ in range(3):
        members.conduct.strike(3, "junk")
    members.lose(3, "dismissed")
    members.disconnect(3)
    join(members, 3, declared=Declared(9))
    assert members.joined == {3: "art"}
    assert members.conduct.strike(3, "junk") == ""


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("proven", [False, True])
@pytest.mark.parametrize(
    ("honest", "problem"),
    [
        (("moon", Declared(9)), "but the client declared"),
        (("photo", Declared(7)), "but the client joined with 'moon' before"),
    ],
)
def test_what_the_run_has_used_binds_who_comes_next(honest, problem, used, proven):
    """A stranger joined last under client 2's number, with a domain of its own. With
    tokens it is no stranger."""
    members = Membership(2, 1, SETTINGS, TRUE, proven=proven)
    heard = {}
    members.on_domain = heard.__setitem__
    join(members, 1)
    join(members, 2, domain="moon")
    members.begin([1, 2])
    if used:
        members.accept(2)
    members.lose(2, "gone")
    members.disconnect(2)
    domain, declared = honest
    if used or proven:
        with pytest.raises(MessageError, match=problem):
            join(members, 2, TRUE, domain, declared)
        assert heard[2] == "moon"
        return
    join(members, 2, TRUE, domain, declared)
    assert members.client_domains == {1: "art", 2: domain}
    assert heard[2] == domain
    assert members.declared[2] == declared


def test_a_client_that_is_always_late_costs_two_deadlines():
    carried = after_round_0(quorum=2)
    for number in range(1, 10):
        carried.faults["train", number, 2] = late
        carried.faults["evaluate", number, 2] = late
    for number in range(1, 10):
        carried.rounds(number)
        # What came late is something due, so it is asked again.
        carried.membership.heard_from(2)
    asked = [request for request in carried.requests if 2 in request.parts]
    late_ones = [request for request in asked if request.kind.deadline == "train"]
    assert len(late_ones) == 2
    (client, reason), *others = carried.dismissed
    assert (client, others) == (2, [])
    said = "barred after 2 missed deadlines, the last one: no answer within 5 s"
    assert said in reason
