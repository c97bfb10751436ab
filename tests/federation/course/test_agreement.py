"""What all sides have alike is said by the server or by most clients, never the first.

Tests of federation/course/membership.py, too: who is put out for it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.federation.course.agreement import Agreement
from federatedscope_ggeur.federation.course.membership import Membership
from federatedscope_ggeur.federation.wire.handshake import Handshake, Join

SETTINGS = {"seed": "0"}
TRUE = Handshake(("cat", "dog"), 16, "clip", SETTINGS)
FALSE = replace(TRUE, dim=2**40)
CLIENTS = 4


def join(members: Membership, number: int, handshake: Handshake = TRUE) -> dict:
    return members.admit(Join(number, "art", handshake))


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
    assert members.complete


def test_too_few_that_agree_are_an_error():
    members = Membership(10, 3, SETTINGS)
    join(members, 1, FALSE)
    for number in (2, 3):
        join(members, number)
    with pytest.raises(GGEURError, match=r"clients \[2, 3\] agree; clients \[1\]: dim"):
        members.close(5.0)


def test_two_sides_of_the_same_size_are_an_error(members):
    for number in (1, 2):
        join(members, number, FALSE)
    join(members, 3)
    with pytest.raises(GGEURError, match=r"\[1, 2\] agree; clients \[3, 4\]: dim is"):
        join(members, 4)


def test_what_a_lost_client_said_no_longer_counts(members):
    for number in (1, 2, 3):
        join(members, number, FALSE)
    assert members.handshake == FALSE
    members.lose(2, "gone")
    assert members.handshake is None
    join(members, 2)
    refused = Agreement(2, SETTINGS).note(1, TRUE)
    assert refused == {}
