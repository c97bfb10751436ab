"""A hub on the loopback interface, links to it, and peers that break its rules."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from contextlib import ExitStack, suppress
from queue import SimpleQueue

import pytest

from federatedscope_ggeur.engines.sites.transport import (
    Envelope,
    Hub,
    Link,
    TransportSettings,
)

JOIN = Envelope("join_in")
METHOD = "/federatedscope_ggeur.Transport/Join"
#: Seconds after which a test that waits has failed.
PATIENCE = 300.0
CURVE = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
#: An authority, a server's certificate by each of its names, and one of a client.
RECIPE = f"""
openssl req -x509 {CURVE} -days 3650 -subj "/CN=our federation" \
    -keyout authority.key -out authority.pem
printf 'subjectAltName=DNS:localhost,DNS:server.example.org,IP:127.0.0.1' > names.txt
openssl req {CURVE} -subj "/CN=server" -keyout server.key -out server.csr
openssl x509 -req -in server.csr -CA authority.pem -CAkey authority.key \
    -CAcreateserial -days 365 -extfile names.txt -out server.pem
openssl req {CURVE} -subj "/CN=client 3" -keyout client_3.key -out client_3.csr
openssl x509 -req -in client_3.csr -CA authority.pem -CAkey authority.key \
    -CAcreateserial -days 365 -out client_3.pem
"""
#: More files: another authority, an expired certificate, one for another name, and what
#: is none.
MORE = f"""
openssl req -x509 {CURVE} -days 2 -subj "/CN=others" -keyout other.key -out other.pem
openssl req {CURVE} -subj "/CN=server" -keyout old.key -out old.csr
openssl x509 -req -in old.csr -CA authority.pem -CAkey authority.key -CAcreateserial \
    -days -1 -extfile names.txt -out old.pem
printf 'subjectAltName=DNS:elsewhere.example.org' > elsewhere.txt
openssl req {CURVE} -subj "/CN=server" -keyout elsewhere.key -out elsewhere.csr
openssl x509 -req -in elsewhere.csr -CA authority.pem -CAkey authority.key \
    -CAcreateserial -days 2 -extfile elsewhere.txt -out elsewhere.pem
openssl req {CURVE} -subj "/CN=c" -keyout stranger.key -out stranger.csr
openssl x509 -req -in stranger.csr -CA other.pem -CAkey other.key -CAcreateserial \
    -days 2 -out stranger.pem
openssl ec -in server.key -aes128 -passout pass:x -out locked.key
head -c 20 server.key > garbage
"""


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
            link = Link(address, number, message, TransportSettings(**settings))
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


@pytest.fixture(scope="session")
def pem(tmp_path_factory):
    """Certificates as `openssl` makes them, good and bad ones, by their names."""
    for program in ("openssl", "bash"):
        if shutil.which(program) is None:
            pytest.skip(f"the program {program}, which the recipe takes, is missing")
    folder = tmp_path_factory.mktemp("recipe")
    for commands in (RECIPE, MORE):
        command = ["bash", "-e", "-c", commands]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
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
