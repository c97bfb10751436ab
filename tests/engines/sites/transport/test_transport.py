"""Messages travel between a hub and its links whole and in order, until one ends.

Tests of transport/streams.py.
"""

import logging
import signal
import subprocess
import sys
import threading
from contextlib import closing, contextmanager

import pytest
from foreign_text import FORGED, hidden_in
from own_process import until
from processes import free_port

from federatedscope_ggeur.engines.sites.transport import (
    ConnectionLost,
    Envelope,
    Event,
    Hub,
    HubClosed,
    Refused,
    Security,
    TransportSettings,
    open_link,
    settings,
)
from federatedscope_ggeur.engines.sites.transport.streams import Allowance
from federatedscope_ggeur.errors import ConfigError, GGEURError, MessageError

pytest.importorskip("grpc", reason="the transport needs grpcio")

JOIN = Envelope("join_in", 0, (b"hello",))
PATIENCE = 300.0
SETTINGS = TransportSettings(2**20, join_deadline=PATIENCE)


def test_messages_go_both_ways(hub, join):
    link = join(hub, 3, JOIN)
    assert hub.receive(PATIENCE) == Event(3, JOIN)
    down = Envelope("model_para", 1, (b"", b"weights" * 1000))
    assert hub.send(3, down)
    assert link.receive(PATIENCE) == down
    up = Envelope("statistics", 1, (bytes(10),))
    link.send(up)
    assert hub.receive(PATIENCE) == Event(3, up)
    assert not hub.send(4, down)
    assert hub.receive(0.0) is None
    assert link.receive(0.0) is None


def test_a_client_may_start_before_its_server(make_hub):
    found = []

    def start():
        with closing(open_link(f"127.0.0.1:{port}", 1, JOIN, SETTINGS)) as link:
            found.append(link.receive(PATIENCE))

    port = free_port()
    client = threading.Thread(target=start)
    client.start()
    client.join(0.3)
    with closing(Hub("127.0.0.1", port, 1, SETTINGS)) as hub:
        assert hub.receive(PATIENCE) == Event(1, JOIN)
        hub.send(1, Envelope("finish"))
        assert hub.receive(PATIENCE).envelope is None
    client.join(PATIENCE)
    assert found == [Envelope("finish")]


def test_a_server_that_never_comes_is_named():
    port = free_port()
    settings = TransportSettings(2**20, join_deadline=0.3)
    with pytest.raises(ConnectionLost, match=rf"127\.0\.0\.1:{port} within 0\.3 s"):
        open_link(f"127.0.0.1:{port}", 1, JOIN, settings)


def test_a_taken_port_is_named(hub):
    with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{hub.port}.*server_port"):
        Hub("127.0.0.1", hub.port, 1, SETTINGS)


@pytest.mark.parametrize("number", [0, -1])
def test_a_number_below_1_is_an_error(hub, join, number):
    with pytest.raises(MessageError, match=r"distribute\.data_idx counts from 1"):
        join(hub, number)


def test_a_message_above_the_receivers_limit_ends_the_stream(make_hub, joined):
    hub = make_hub(max_message=2000)
    sender, receiver = joined(hub, 1), joined(hub, 2, max_message=1000)
    sender.send(Envelope("model_para", 0, (bytes(2001),)))
    gone = hub.receive(PATIENCE)
    assert (gone.number, gone.envelope) == (1, None)
    assert "client 1" in gone.reason
    assert "limit of 2000" in gone.reason
    with pytest.raises(Refused, match="limit of 2000"):
        sender.receive(PATIENCE)
    hub.send(2, Envelope("model_para", 0, (bytes(1001),)))
    with pytest.raises(ConnectionLost, match="limit of 1000"):
        receiver.receive(PATIENCE)
    assert hub.receive(PATIENCE).number == 2


def test_a_message_beyond_what_is_due_ends_the_stream_unread(hub, joined):
    """However much a client may send at other times."""
    link = joined(hub, 1)
    hub.expect(1, 100)
    link.send(Envelope("statistics", 0, (bytes(100),)))
    assert hub.receive(PATIENCE).envelope.size == 100
    link.send(Envelope("statistics", 0, (bytes(101),)))
    assert "may have at most 100 bytes now, got 101" in hub.receive(PATIENCE).reason


def test_a_client_that_does_not_read_holds_up_nobody(hub, joined):
    slow, quick = joined(hub, 1), joined(hub, 2)
    part = bytes(8_000_000)
    for state in range(8):
        assert hub.send(1, Envelope("model_para", state, (part,)))
        assert hub.send(2, Envelope("model_para", state, (part,)))
        assert quick.receive(PATIENCE).state == state
    assert [slow.receive(PATIENCE).state for _ in range(8)] == list(range(8))


def test_unread_messages_of_a_client_wait_outside(make_hub, joined):
    hub = make_hub(max_message=100_000)
    link = joined(hub, 1, max_message=100_000)
    for state in range(200):
        link.send(Envelope("flood", state, (bytes(100_000),)))
    read = [hub.receive(PATIENCE).envelope.state for _ in range(200)]
    assert read == list(range(200))
    for state in range(400):
        link.send(Envelope("flood", state, (bytes(100_000),)))
    # It would close at once if the hub had taken all there is.
    link.close(grace=0.3)
    taken = []
    while envelope := hub.receive(PATIENCE).envelope:
        taken.append(envelope.state)
    # Each one read lets another in, until the end of the stream arrives.
    assert taken == list(range(len(taken)))
    assert 1 <= len(taken) < 100


def test_who_waits_for_a_reader_goes_on_when_the_stream_is_over():
    unread = Allowance(1)
    unread.take(100)
    waiting = threading.Thread(target=unread.take, args=(100,), daemon=True)
    waiting.start()
    waiting.join(0.1)
    unread.lift()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


def test_a_proxy_is_used_only_if_asked_for(hub, joined, join, monkeypatch):
    port = free_port()
    for name in ("grpc_proxy", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    joined(hub, 1)
    with pytest.raises(ConnectionLost, match="no server answered"):
        join(hub, 2, http_proxy=True, join_deadline=0.3)


def test_a_secret_without_tls_is_warned_of(make_hub, tmp_path, caplog):
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef\n")
    with caplog.at_level(logging.WARNING):
        make_hub(security=Security(join_secret=str(secret)))
    assert "not encrypted" in caplog.text


@pytest.mark.parametrize(
    "make",
    [
        lambda: Hub("127.0.0.1", 0, 1, SETTINGS),
        lambda: open_link("127.0.0.1:1", 1, JOIN, SETTINGS),
    ],
    ids=["server", "site"],
)
def test_without_grpc_the_error_says_what_to_install(make, monkeypatch):
    monkeypatch.setattr(settings, "grpc", None)
    with pytest.raises(ConfigError, match=r"pip install .*ggeur\[sites\]"):
        make()


# A stream ends on either side's word, with its reason, and leaves nothing behind.


def test_a_number_joins_once_at_a_time(hub, joined, join):
    first = joined(hub, 3)
    with pytest.raises(Refused, match="client 3 has joined already") as told:
        join(hub, 3)
    assert "ggeur.client_number" in str(told.value)
    assert "distribute.data_idx" in str(told.value)
    first.send(Envelope("still_there"))
    assert hub.receive(PATIENCE) == Event(3, Envelope("still_there"))


def test_a_client_that_left_may_join_again(hub, joined):
    first = joined(hub, 3)
    first.send(Envelope("last_words"))
    first.close()
    assert hub.receive(PATIENCE) == Event(3, Envelope("last_words"))
    gone = hub.receive(PATIENCE)
    assert gone == Event(3, None, "the client closed its stream")
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
    joined(hub, 1)
    received = []
    with pytest.raises((Refused, ConnectionLost)):
        received.extend(iter(lambda: link.receive(PATIENCE), None))
    assert len(received) < 8


def test_nothing_of_a_client_follows_its_gone_event(make_hub, joined):
    hub = make_hub(max_message=100_000)
    link = joined(hub, 1, max_message=100_000)
    for state in range(3):
        link.send(Envelope("flood", state, (bytes(100_000),)))
    until(lambda: hub._events.qsize())  # the second waits for the first to be read
    hub.dismiss(1, "enough")
    assert hub.receive(PATIENCE).envelope.state == 0
    assert hub.receive(PATIENCE) == Event(1, None, "enough")
    assert hub.receive(0.1) is None


def test_a_link_with_unread_messages_closes(hub, joined):
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
