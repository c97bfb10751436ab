"""A hub on the loopback interface, links to it, and peers that break its rules."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from queue import SimpleQueue

import pytest

from federatedscope_ggeur.engines.sites.transport import (
    Envelope,
    Hub,
    Link,
    TransportSettings,
    certificates,
    open_link,
)
from federatedscope_ggeur.engines.sites.transport.certificates import (
    make_authority,
    make_certificate,
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


class Earlier(datetime):
    """The clock of three days ago."""

    @classmethod
    def now(cls, tz=None):
        return datetime.now(tz) - timedelta(days=3)


@pytest.fixture(scope="session")
def pem(tmp_path_factory):
    """Certificates, good and bad ones, by the names of their files."""
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization as forms

    folder, names = tmp_path_factory.mktemp("pem"), ["localhost", "127.0.0.1"]

    def write(name: str, pair: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        (folder / f"{name}.pem").write_bytes(pair[0])
        (folder / f"{name}.key").write_bytes(pair[1])
        return pair

    ours = write("authority", make_authority("our federation"))
    other = write("other", make_authority("others"))
    _, key = write("server", make_certificate("server", ours, 365, names))
    write("client_3", make_certificate("client 3", ours, 365))
    with pytest.MonkeyPatch.context() as then:
        then.setattr(certificates, "datetime", Earlier)
        write("old", make_certificate("server", ours, 1, names))
    write("elsewhere", make_certificate("server", ours, 2, ["elsewhere.example.org"]))
    write("stranger", make_certificate("a client", other, 2))
    locked = forms.load_pem_private_key(key, None).private_bytes(
        forms.Encoding.PEM,
        forms.PrivateFormat.TraditionalOpenSSL,
        forms.BestAvailableEncryption(b"x"),
    )
    (folder / "locked.key").write_bytes(locked)
    (folder / "garbage").write_bytes(key[:20])
    return lambda name: str(folder / name) if name else ""


@pytest.fixture
def until():
    """Wait until something is so."""

    def wait(is_so):
        end = time.monotonic() + PATIENCE
        while not is_so():
            assert time.monotonic() < end
            time.sleep(0.01)

    return wait
