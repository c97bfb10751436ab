"""A stream ends on either side's word, with its reason, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from contextlib import closing, contextmanager

import pytest
from foreign_text import FORGED, hidden_in

from federatedscope_ggeur.engines.sites.transport import (
    ConnectionLost,
    Envelope,
    Event,
    HubClosed,
    Refused,
    TransportSettings,
    open_link,
)
from federatedscope_ggeur.errors import GGEURError

pytest.importorskip("grpc", reason="the transport needs grpcio")

PATIENCE = 300.0
SETTINGS = TransportSettings(2**20, join_deadline=PATIENCE)


def test_a_number_joins_once_at_a_time(hub, joined, join):
    first = joined(hub, 3)
    with pytest.raises(Refused, match=r"client 3 has joined already.*data_idx"):
        join(hub, 3)
    assert hub.connected() == {3}
    first.send(Envelope("still_there"))
    assert hub.receive(PATIENCE) == Event(3, Envelope("still_there"))


def test_a_client_that_left_may_join_again(hub, joined):
    first = joined(hub, 3)
    first.send(Envelope("last_words"))
    first.close()
    assert hub.receive(PATIENCE) == Event(3, Envelope("last_words"))
    gone = hub.receive(PATIENCE)
    assert gone == Event(3, None, "the client closed its stream")
    assert hub.connected() == set()
    assert not hub.send(3, Envelope("model_para"))
    again = joined(hub, 3)
    hub.send(3, Envelope("model_para", 5))
    assert again.receive(PATIENCE) == Envelope("model_para", 5)


def test_a_closed_link_says_so(hub, joined):
    link = joined(hub, 1)
    link.close()
    for use in (lambda: link.receive(PATIENCE), lambda: link.send(Envelope("late"))):
        with pytest.raises(ConnectionLost, match="closed by this client"):
            use()


def test_a_dismissed_client_learns_why(hub, joined):
    link, other = joined(hub, 1), joined(hub, 2)
    reason = "message refused: field 'means': ∞ " + "x" * 2000
    hub.dismiss(1, reason)
    hub.dismiss(7, "nobody is there")
    assert hub.receive(PATIENCE) == Event(1, None, reason)
    for _ in range(2):
        with pytest.raises(Refused, match="client 1") as caught:
            link.receive(PATIENCE)
    assert caught.value.reason == reason[:1000]
    with pytest.raises(Refused):
        link.send(Envelope("more"))
    other.send(Envelope("here"))
    assert hub.receive(PATIENCE) == Event(2, Envelope("here"))
    joined(hub, 1)


def test_a_server_writes_no_lines_of_its_client(hub, joined):
    link = joined(hub, 1)
    hub.dismiss(1, f"art\n{FORGED}\r\x1b[2J\u202e\ud800")
    with pytest.raises(Refused) as caught:
        link.receive(PATIENCE)
    assert len(str(caught.value).splitlines()) == 1
    assert not hidden_in(str(caught.value))


def test_closing_lets_the_last_messages_out(hub, joined):
    links = [joined(hub, number) for number in (1, 2)]
    last = Envelope("finish", 9, (bytes(3_000_000),))
    for number in (1, 2):
        hub.send(number, last)
    hub.close("the run is over")
    for link in links:
        assert link.receive(PATIENCE) == last
        with pytest.raises(HubClosed) as caught:
            link.receive(PATIENCE)
        assert caught.value.reason == "the run is over"
        assert isinstance(caught.value, GGEURError)
        with pytest.raises(HubClosed):
            link.send(Envelope("late"))
    events = [hub.receive() for _ in range(3)]
    assert {e.number for e in events[:2]} == {1, 2}
    assert events[2] is None
    assert not hub.send(1, last)
    hub.close()


def test_closing_wakes_a_waiting_receiver(hub):
    found = []
    waiting = threading.Thread(target=lambda: found.append(hub.receive()))
    waiting.start()
    hub.close()
    waiting.join(PATIENCE)
    assert found == [None]


def test_dismissing_a_client_that_does_not_read(hub, joined):
    link = joined(hub, 1)
    for state in range(8):
        hub.send(1, Envelope("model_para", state, (bytes(8_000_000),)))
    hub.dismiss(1, "too slow")
    assert hub.receive(PATIENCE) == Event(1, None, "too slow")
    assert hub.connected() == set()
    joined(hub, 1)
    received = []
    with pytest.raises((Refused, ConnectionLost)):
        received.extend(iter(lambda: link.receive(PATIENCE), None))
    assert len(received) < 8


def test_nothing_of_a_client_follows_its_gone_event(make_hub, joined, until):
    hub = make_hub(max_message=100_000)
    link = joined(hub, 1, max_message=100_000)
    for state in range(3):
        link.send(Envelope("flood", state, (bytes(100_000),)))
    until(lambda: hub._events.qsize())  # the second waits for the first to be read
    hub.dismiss(1, "enough")
    assert hub.receive(PATIENCE).envelope.state == 0
    assert hub.receive(PATIENCE) == Event(1, None, "enough")
    assert hub.receive(0.1) is None


def test_a_link_with_unread_messages_closes(hub, joined, until):
    link = joined(hub, 1)
    for state in range(8):
        hub.send(1, Envelope("model_para", state, (bytes(8_000_000),)))
    until(lambda: link._inbox.qsize())  # the link takes no more
    link.close()
    assert hub.receive(PATIENCE) == Event(1, None, "the client closed its stream")
    assert "link reader" not in {thread.name for thread in threading.enumerate()}


def test_streams_leave_no_threads(make_hub, joined):
    before = set(threading.enumerate())
    hub = make_hub()
    links = [joined(hub, number) for number in (1, 2)]
    links[0].close()
    hub.dismiss(2, "enough")
    with pytest.raises(Refused):
        links[1].receive(PATIENCE)
    links[1].close()
    hub.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
        assert not thread.is_alive()


# Processes that are killed, stopped or simply end are noticed by the other side.


pytest.importorskip("grpc", reason="the transport needs grpcio")

CLIENT = """
import sys
from federatedscope_ggeur.engines.sites.transport import *
settings = TransportSettings(2**20, keepalive=0.5)
link = open_link(sys.argv[1], 1, Envelope("join_in"), settings)
"""
HUB = """
from federatedscope_ggeur.engines.sites.transport import *
hub = Hub("127.0.0.1", 0, 2, TransportSettings(2**20))
print(hub.port, flush=True)
"""


@contextmanager
def process(program: str, *arguments: str):
    command = [sys.executable, "-c", program, *arguments]
    one = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield one
    finally:
        one.kill()
        one.wait(PATIENCE)
        one.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize("sign", ["SIGKILL", "SIGSTOP"])
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_client_that_vanishes_is_gone_and_may_come_back(make_hub, joined, sign):
    hub = make_hub(keepalive=0.5)
    program = CLIENT + "link.receive()"
    with process(program, f"127.0.0.1:{hub.port}") as client:
        assert hub.receive(PATIENCE).envelope.kind == "join_in"
        client.send_signal(getattr(signal, sign))
        gone = hub.receive(PATIENCE)
        assert (gone.number, gone.envelope) == (1, None)
        assert "broke off" in gone.reason
        joined(hub, 1)


def test_a_server_that_is_killed_is_noticed():
    with process(HUB + "hub.receive(); hub.receive()") as server:
        address = f"127.0.0.1:{server.stdout.readline().strip()}"
        with closing(open_link(address, 1, Envelope("join_in"), SETTINGS)) as link:
            server.kill()
            with pytest.raises(ConnectionLost, match=address):
                link.receive(PATIENCE)
            with pytest.raises(ConnectionLost, match=address):
                link.send(Envelope("statistics"))
