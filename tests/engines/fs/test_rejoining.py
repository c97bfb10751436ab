"""A client that loses its server comes back after pauses, and not for ever."""

from __future__ import annotations

import threading
import time
from concurrent import futures

import pytest

from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.transport import ConnectionLost, Envelope, Hub
from federatedscope_ggeur.transport.frames import WELCOME, to_frames
from federatedscope_ggeur.transport.settings import METHOD, SERVICE, TransportSettings

pytestmark = pytest.mark.slow

grpc = pytest.importorskip("grpc", reason="distributed mode needs grpcio")
SETTINGS = TransportSettings(2**20)


@pytest.fixture
def rejoining(federatedscope):
    from federatedscope_ggeur.engines.fs import rejoining

    return rejoining


def test_pauses_double_up_to_half_a_minute(rejoining, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    one = rejoining.Rejoining()
    lost = ConnectionLost("broken off")
    pauses = [one.pause(lost) for _ in range(rejoining.LIMIT)]
    assert pauses[:7] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert set(pauses[6:]) == {30.0}
    with pytest.raises(GGEURError, match="joined again 20 times"):
        one.pause(lost)


def test_a_connection_that_lasted_counts_as_a_new_beginning(rejoining, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    one = rejoining.Rejoining()
    lost = ConnectionLost("broken off")
    assert [one.pause(lost), one.pause(lost)] == [0.5, 1.0]
    one.joined()
    now[0] += 61
    assert one.pause(lost) == 0.5


@pytest.fixture
def rogue_server():
    """A server that welcomes everyone and ends the stream; how often, and its port."""
    calls = []

    def serve(requests, context):
        calls.append(next(requests))
        yield from to_frames(Envelope(WELCOME), SETTINGS)
        context.abort(grpc.StatusCode.INTERNAL, "enough")

    handler = grpc.stream_stream_rpc_method_handler(serve)
    server = grpc.server(
        futures.ThreadPoolExecutor(2),
        [grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})],
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield calls, port
    server.stop(0.1)


@pytest.mark.slow
def test_a_server_that_welcomes_and_aborts_is_asked_a_few_times(fleet, rogue_server):
    calls, port = rogue_server
    one = fleet()
    client = one.client(1, "distribute.server_port", port)
    client.wait_for("joining again")
    time.sleep(16)
    assert 3 <= len(calls) <= 10
    client.kill()


def test_a_silent_server_is_given_up(fleet, monkeypatch):
    monkeypatch.setattr(Hub, "_beat", lambda hub: None)
    one = fleet("ggeur.deadline.silence", 2)
    with Hub("127.0.0.1", 0, 4, SETTINGS) as hub:
        client = one.client(1, "distribute.server_port", hub.port)
        assert client.wait() == 1
    assert "the server at 127.0.0.1" in client.output
    assert "for 2 s (ggeur.deadline.silence)" in client.output
    assert "Traceback" not in client.output


def test_a_server_with_nothing_to_say_is_waited_for(fleet):
    one = fleet("ggeur.deadline.silence", 2)
    settings = TransportSettings(2**20, keepalive=0.2)
    with Hub("127.0.0.1", 0, 4, settings) as hub:
        client = one.client(1, "distribute.server_port", hub.port)
        assert hub.receive(30).envelope.kind == "join_in"
        assert not threading.Event().wait(4)
        assert client.status() is None
        hub.send(1, Envelope("nothing_of_ours"))
        assert client.wait() == 1
    assert "unknown type 'nothing_of_ours'" in client.output
