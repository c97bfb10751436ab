"""Messages travel between a hub and its links whole and in order.

Tests of transport/streams.py.
"""

from __future__ import annotations

import logging
import threading
from contextlib import closing

import pytest

from federatedscope_ggeur.engines.sites.transport import (
    ConnectionLost,
    Envelope,
    Event,
    Hub,
    Refused,
    TransportSettings,
    open_link,
    settings,
)
from federatedscope_ggeur.errors import ConfigError, MessageError

pytest.importorskip("grpc", reason="the transport needs grpcio")

JOIN = Envelope("join_in", 0, (b"hello",))
PATIENCE = 300.0
SETTINGS = TransportSettings(2**20, join_deadline=PATIENCE)


def test_messages_go_both_ways(hub, join):
    link = join(hub, 3, JOIN)
    assert hub.receive(PATIENCE) == Event(3, JOIN)
    assert hub.connected() == {3}
    down = Envelope("model_para", 1, (b"", b"weights" * 1000))
    assert hub.send(3, down)
    assert link.receive(PATIENCE) == down
    up = Envelope("statistics", 1, (bytes(10),))
    link.send(up)
    assert hub.receive(PATIENCE) == Event(3, up)
    assert not hub.send(4, down)
    assert hub.receive(0.0) is None
    assert hub.receive(-1.0) is None
    assert link.receive(0.0) is None


def test_a_client_may_start_before_its_server(make_hub):
    found = []

    def start():
        with closing(open_link(f"127.0.0.1:{port}", 1, JOIN, SETTINGS)) as link:
            found.append(link.receive(PATIENCE))

    with closing(Hub("127.0.0.1", 0, 1, SETTINGS)) as placeholder:
        port = placeholder.port
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
    with closing(Hub("127.0.0.1", 0, 1, SETTINGS)) as placeholder:
        port = placeholder.port
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


def test_a_proxy_is_used_only_if_asked_for(hub, joined, join, monkeypatch):
    with closing(Hub("127.0.0.1", 0, 1, SETTINGS)) as placeholder:
        port = placeholder.port
    for name in ("grpc_proxy", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    joined(hub, 1)
    with pytest.raises(ConnectionLost, match="no server answered"):
        join(hub, 2, http_proxy=True, join_deadline=0.3)


def test_a_secret_without_tls_is_warned_of(make_hub, tmp_path, caplog):
    from federatedscope_ggeur.engines.sites.transport import Security

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
