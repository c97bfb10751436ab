"""Who sends what it should not, or is late too often, is put out by name."""

from __future__ import annotations

import pytest
from carrier import carrier, garbage, late

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.course.membership import Membership
from federatedscope_ggeur.federation.course.strikes import Conduct
from federatedscope_ggeur.federation.wire.declared import Declared
from federatedscope_ggeur.federation.wire.handshake import Handshake, Join


def test_three_strikes_and_two_deadlines():
    conduct = Conduct()
    assert conduct.strike(3, "a") == conduct.strike(3, "b") == ""
    assert conduct.strike(4, "a") == conduct.miss(4, "slow") == ""
    assert conduct.barred == {}
    reason = conduct.strike(3, "junk")
    assert reason == "barred after 3 invalid messages, the last one: junk"
    assert "2 missed deadlines, the last one: slow" in conduct.miss(4, "slow")
    assert list(conduct.barred) == [3, 4]


def test_joining_again_forgives_nothing():
    members = Membership(4, 2)
    join = Join(3, "art", Handshake(("a",), 2, "none", {}))
    members.admit(join)
    for _ in range(3):
        members.conduct.strike(3, "junk")
    members.lose(3, "dismissed")
    with pytest.raises(MessageError, match="has barred this client: barred after 3"):
        members.admit(join)


def test_where_a_number_proves_nothing_the_next_one_begins_anew():
    members = Membership(4, 2, proven=False)
    handshake = Handshake(("a",), 2, "none", {})
    members.admit(Join(3, "moon", handshake, Declared(7)))
    for _ in range(3):
        members.conduct.strike(3, "junk")
    members.lose(3, "dismissed")
    members.disconnect(3)
    members.admit(Join(3, "art", handshake, Declared(9)))
    assert members.joined == {3: "art"}
    assert members.conduct.strike(3, "junk") == ""


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize(
    ("honest", "problem"),
    [
        (("moon", Declared(9)), "but the client declared"),
        (("photo", Declared(7)), "but the client joined with 'moon' before"),
    ],
)
def test_what_the_run_has_used_binds_who_comes_next(honest, problem, used):
    """A stranger joined last under client 2's number, with a domain of its own."""
    members = Membership(2, 1, proven=False)
    heard = {}
    members.on_domain = heard.__setitem__
    handshake = Handshake(("a",), 2, "none", {})
    members.admit(Join(1, "art", handshake, Declared(7)))
    members.admit(Join(2, "moon", handshake, Declared(7)))
    members.begin([1, 2])
    if used:
        members.accept(2)
    members.lose(2, "gone")
    members.disconnect(2)
    domain, declared = honest
    join = Join(2, domain, handshake, declared)
    if used:
        with pytest.raises(MessageError, match=problem):
            members.admit(join)
        assert heard[2] == "moon"
        return
    members.admit(join)
    assert members.client_domains == {1: "art", 2: domain}
    assert heard[2] == domain
    assert members.declared[2] == declared


def test_with_tokens_a_domain_stays():
    members = Membership(1, 1)
    handshake = Handshake(("a",), 2, "none", {})
    members.admit(Join(1, "art", handshake, Declared(7)))
    members.begin([1])
    members.lose(1, "gone")
    with pytest.raises(MessageError, match="but the client joined with 'art' before"):
        members.admit(Join(1, "photo", handshake, Declared(7)))


def test_a_client_that_is_always_late_costs_two_deadlines():
    carried = carrier(quorum=2)
    carried.round0()
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
    assert (
        "barred after 2 missed deadlines, the last one: no answer within 5 s" in reason
    )


def test_one_that_is_refused_again_and_again_is_put_out():
    carried = carrier(quorum=2)
    carried.round0()
    for number in range(1, 6):
        carried.faults["train", number, 2] = garbage
        carried.rounds(number)
        carried.restart(2)
        if 2 not in carried.membership.conduct.barred:
            carried.membership.come_back(2)
    assert len(carried.dismissed) == 3
    assert "barred after 3 invalid messages" in carried.membership.conduct.barred[2]
