"""Streams that wait to join, and a log that nobody can flood."""

from __future__ import annotations

import logging
import socket
import time

import pytest

from federatedscope_ggeur.engines.sites.transport import Refused
from federatedscope_ggeur.engines.sites.transport.probe import reach_problem
from federatedscope_ggeur.engines.sites.transport.streams import SparingLog, WaitingRoom

PATIENCE = 300.0


class Caller:
    def __init__(self, machine: int, port: int):
        self.peer = f"ipv4:10.0.0.{machine}:{port}"


def test_the_oldest_makes_room():
    room = WaitingRoom(clients=2)
    calls = [Caller(n, n) for n in range(room.places + 3)]
    assert [room.enter(call) for call in calls[:-3]] == [None] * room.places
    assert room.enter(calls[-3]) is calls[0]
    room.leave(calls[1])
    room.leave(calls[1])
    assert room.enter(calls[-2]) is None
    assert room.enter(calls[-1]) is calls[2]


def test_a_machine_beyond_its_share_makes_room_itself():
    room = WaitingRoom(clients=2)
    other, calls = Caller(1, 0), [Caller(2, n) for n in range(2 * room.share)]
    assert room.enter(other) is None
    replaced = [room.enter(call) for call in calls]
    assert replaced == [*[None] * room.share, *calls[: room.share]]
    assert room.share < room.places, "others keep some places"


def test_a_number_that_nobody_has_is_refused(make_hub, join):
    hub = make_hub(clients=2)
    with pytest.raises(Refused, match="client 3 is none of the 2 clients of this serv"):
        join(hub, 3)
    join(hub, 2)
    assert hub.receive(PATIENCE).number == 2


def test_what_was_kept_back_is_counted(caplog, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    log = SparingLog(logging.getLogger("sparing"))
    for number in range(1000):
        log.warning("stranger %d", number)
    assert len(caplog.records) == 20
    now[0] += 11
    log.warning("the %s", "last")
    assert [record.getMessage() for record in caplog.records[20:]] == [
        "980 more warnings like those before",
        "the last",
    ]


def test_a_closed_port_and_an_unknown_host_are_told_apart():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "nothing listens there" in reach_problem(f"127.0.0.1:{port}")
    assert "no such host" in reach_problem("no-such-host.invalid:1")
