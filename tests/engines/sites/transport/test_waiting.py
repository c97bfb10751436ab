"""Streams that wait to join, and a log that nobody can flood.

Tests of transport/asking.py, too: a client asks before it joins.
"""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from federatedscope_ggeur.engines.sites.transport import (
    Envelope,
    Event,
    Refused,
    Security,
    TransportSettings,
    make_token,
    streams,
)
from federatedscope_ggeur.engines.sites.transport.asking import (
    ask_server,
    reach_problem,
)
from federatedscope_ggeur.engines.sites.transport.waiting import SparingLog, WaitingRoom

PATIENCE = 300.0
SILENT = 200


@pytest.fixture
def silent_streams():
    """Streams that say nothing and come again, of a process of their own."""
    started = []

    def start(port: int, streams: int, *method: str) -> None:
        program = Path(__file__).with_name("silent_streams.py")
        command = [sys.executable, str(program), str(port), str(streams), *method]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started.append(subprocess.Popen(command, **pipes))
        assert started[-1].stdout.readline() == b"open\n"

    yield start
    for process in started:
        process.kill()
        process.communicate()


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


@pytest.mark.slow
def test_who_joins_is_not_held_up_by_silent_streams(
    make_hub, join, silent_streams, caplog, until
):
    hub = make_hub()
    silent_streams(hub.port, SILENT)
    began = time.monotonic()
    until(lambda: "streams are waiting to join, so the oldest" in caplog.text)
    links = [join(hub, number, join_deadline=PATIENCE) for number in (1, 2, 3, 4)]
    joined = {hub.receive(PATIENCE).number for _ in links}
    assert joined == hub.connected() == {1, 2, 3, 4}
    for number, link in enumerate(links, 1):
        hub.send(number, Envelope("down"))
        assert link.receive(PATIENCE) == Envelope("down")
        link.send(Envelope("up"))
        assert hub.receive(PATIENCE) == Event(number, Envelope("up"))
    spans = (time.monotonic() - began) // 10 + 2
    assert len(caplog.records) <= 21 * spans + 10


@pytest.mark.parametrize(
    "method", ["federatedscope_ggeur.Transport/Ask", "grpc.health.v1.Health/Check"]
)
def test_calls_that_ask_nothing_end_and_hold_nobody_up(
    make_hub, join, silent_streams, caplog, method
):
    """Nor do they gather threads of the server."""
    hub = make_hub()
    before = threading.active_count()
    silent_streams(hub.port, SILENT, f"/{method}")
    end = time.monotonic() + PATIENCE
    while "opened a call and asked nothing" not in caplog.text:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert "ipv4:127.0.0.1" in caplog.text
    for number in (1, 2, 3, 4):
        join(hub, number, join_deadline=PATIENCE)
        assert hub.receive(PATIENCE).number == number
    assert threading.active_count() < before + SILENT / 2
    assert len(caplog.records) < 100


def test_a_call_that_asks_nothing_is_ended(make_hub, monkeypatch, caplog):
    grpc = pytest.importorskip("grpc")
    monkeypatch.setattr(streams, "JOIN_PATIENCE", 0.1)
    hub = make_hub()
    with grpc.insecure_channel(f"127.0.0.1:{hub.port}") as channel:
        ask = channel.stream_unary("/grpc.health.v1.Health/Check")
        with pytest.raises(grpc.RpcError):
            ask(iter(threading.Event().wait, None), timeout=PATIENCE)
    end = time.monotonic() + PATIENCE
    while "opened a call and asked nothing" not in caplog.text:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_numbers_that_nobody_has_are_few(make_hub, peer, join):
    hub = make_hub(clients=2)
    for number in range(3, 19):
        join(hub, number)
        assert hub.receive(PATIENCE).number == number
    with pytest.raises(
        Exception, match="client 19 is none of the 2 clients of this server"
    ):
        join(hub, 19)
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


SECRET = "0123456789abcdef"


def settings(token: str = "") -> TransportSettings:
    return TransportSettings(2**20, security=Security(join_token=token))


def address(hub) -> str:
    return f"127.0.0.1:{hub.port}"


@pytest.fixture
def guarded(make_hub, tmp_path):
    """A hub with tokens, and what writes one into a file."""
    (tmp_path / "secret").write_text(SECRET)
    hub = make_hub(security=Security(join_secret=str(tmp_path / "secret")))
    hub.facts = lambda number, is_taken: f"{number} {is_taken}".encode()

    def token(number: int, secret: str = SECRET) -> str:
        path = tmp_path / f"token{number}"
        path.write_text(make_token(secret.encode(), number))
        return str(path)

    return hub, token


def test_who_asks_takes_no_place(hub, join):
    hub.facts = lambda number, is_taken: f"{number} {is_taken}".encode()
    for _ in range(3):
        assert ask_server(address(hub), 2, settings()) == b"2 False"
    assert hub.receive(0.2) is None
    assert hub.connected() == set()
    join(hub, 2)
    assert ask_server(address(hub), 2, settings()) == b"2 True"
    assert hub.connected() == {2}


def test_with_tokens_only_the_right_one_is_answered(guarded):
    hub, token = guarded
    asked = []
    hub.facts = lambda number, is_taken: asked.append(number) or b"known"
    for wrong in ("", token(3), token(2, "another secret!!")):
        with pytest.raises(Refused, match="client 2 sent"):
            ask_server(address(hub), 2, settings(wrong))
    assert asked == []
    assert ask_server(address(hub), 2, settings(token(2))) == b"known"


def test_the_standard_health_service_says_serving(guarded):
    grpc = pytest.importorskip("grpc")
    hub, _ = guarded
    with grpc.insecure_channel(address(hub)) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=PATIENCE) == b"\x08\x01"  # the status SERVING
        hub.close(grace=1.0)
        with pytest.raises(grpc.RpcError):
            check(b"", timeout=1.0)


def test_a_closed_port_and_an_unknown_host_are_told_apart():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "nothing listens there" in reach_problem(f"127.0.0.1:{port}")
    assert "no such host" in reach_problem("no-such-host.invalid:1")
