"""A hub on the loopback interface, links to it, and peers that break its rules."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress
from queue import SimpleQueue

import pytest

from federatedscope_ggeur.engines.sites.transport import (
    Envelope,
    Hub,
    Link,
    TransportSettings,
    open_link,
)

JOIN = Envelope("join_in")
METHOD = "/federatedscope_ggeur.Transport/Join"
#: Seconds after which a test that waits has failed.
PATIENCE = 300.0


@pytest.fixture
def make_hub():
    """Make hubs on free ports; all are closed at the end."""
    pytest.importorskip("grpc")
    with ExitStack() as stack:

        def make(clients: int = 9, host: str = "127.0.0.1", **settings) -> Hub:
            settings.setdefault("max_message", 2**24)
            hub = Hub(host, 0, clients, TransportSettings(**settings))
            stack.callback(hub.close, grace=1.0)
            return hub

        yield make


@pytest.fixture
def hub(make_hub):
    return make_hub()


@pytest.fixture
def join():
    """Make links to a hub; all are closed at the end."""
    pytest.importorskip("grpc")
    with ExitStack() as stack:

        def make(hub: Hub, number: int, message=JOIN, host="127.0.0.1", **settings):
            settings.setdefault("max_message", 2**24)
            settings.setdefault("join_deadline", PATIENCE)
            address = f"{host}:{hub.port}"
            link = open_link(address, number, message, TransportSettings(**settings))
            stack.callback(link.close, grace=1.0)
            return link

        yield make


@pytest.fixture
def joined(join):
    """As `join`, and takes the hub's event of it."""

    def make(hub: Hub, number: int, **settings) -> Link:
        link = join(hub, number, **settings)
        event = hub.receive(PATIENCE)
        assert (event.number, event.envelope) == (number, JOIN)
        return link

    return make


class Peer:
    """A raw gRPC client that sends whatever frames it is told to.

    Parameters
    ----------
    port : int
        Of a hub on the loopback interface.
    frames : bytes
        Sent at once.
    """

    def __init__(self, port: int, *frames: bytes, **call):
        import grpc

        unlimited = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
        ]
        self.outbox = SimpleQueue()
        for frame in frames:
            self.outbox.put(frame)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", unlimited)
        method = self.channel.stream_stream(METHOD)
        self.call = method(iter(self.outbox.get, None), timeout=PATIENCE, **call)

    def cancel(self) -> None:
        self.outbox.put(None)
        self.channel.close()

    def end(self) -> tuple[str, str]:
        """Read to the stream's end; its status code and the server's reason."""
        import grpc

        with suppress(grpc.RpcError):
            list(self.call)
        code = self.call.code().name
        self.outbox.put(None)
        trailers = dict(self.call.trailing_metadata() or ())
        return code, trailers.get("ggeur-reason-bin", b"").decode()


@pytest.fixture
def peer():
    """Make raw peers; all are cancelled at the end."""
    pytest.importorskip("grpc")
    with ExitStack() as stack:

        def make(hub: Hub, *frames: bytes, **call) -> Peer:
            one = Peer(hub.port, *frames, **call)
            stack.callback(one.cancel)
            return one

        yield make


@pytest.fixture
def no_thread_dies():
    """Fail if an exception ends a thread unseen."""
    seen, before = [], threading.excepthook
    threading.excepthook = seen.append
    yield
    threading.excepthook = before
    assert not seen
