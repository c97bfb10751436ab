"""The server's end of the transport: one port, one stream for each client."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.transport.endings import Refused
from federatedscope_ggeur.transport.frames import (
    LEAVE,
    WELCOME,
    Envelope,
    Introduction,
    read_envelope,
    read_join,
    to_frames,
)
from federatedscope_ggeur.transport.security import check_token
from federatedscope_ggeur.transport.settings import (
    JOIN_PATIENCE,
    METHOD,
    REASON,
    SERVICE,
    TransportSettings,
    require_grpc,
    server_options,
)
from federatedscope_ggeur.transport.streams import DaemonThreads, Goodbye, Stream

logger = logging.getLogger(__name__)

#: Part of the reason when a number is taken.
ALREADY_JOINED = "has joined already"

# Streams beyond those of the clients, so that a refused one can hear why.
_SPARE_STREAMS = 16
# Characters: gRPC carries a reason in a header of at most 8 KiB.
_LONGEST_REASON = 1000
_BROKEN = Goodbye(
    "the connection broke off: the client's process or the network ended it, or a "
    "frame was longer than this server admits"
)


@dataclass(frozen=True)
class Event:
    """What a hub has received.

    Attributes
    ----------
    number : int
        The client that the stream joined as.
    envelope : Envelope or None
        Its message; None: its stream is gone.
    reason : str
        Why it is gone.
    """

    number: int
    envelope: Envelope | None
    reason: str = ""


class Hub:
    """The server: listens as soon as it is made.

    Parameters
    ----------
    host : str
        The own address to listen on, e.g. ``"0.0.0.0"``.
    port : int
        0 takes any free one; the attribute `port` tells which.
    expected_clients : int
        How many streams there will be.
    settings : TransportSettings

    Raises
    ------
    ConfigError
        If grpcio is missing, the port is taken, or a file of `settings.security`
        cannot be used.
    """

    def __init__(
        self, host: str, port: int, expected_clients: int, settings: TransportSettings
    ):
        self._grpc = require_grpc()
        self._settings = settings
        self._secret = settings.security.secret()
        self._patience = min(settings.join_deadline, JOIN_PATIENCE)
        self._lock = threading.Lock()
        self._closed = False
        self._open: set[Stream] = set()
        self._joined: dict[int, Stream] = {}
        self._events: SimpleQueue[tuple[Event, Stream | None] | None] = SimpleQueue()
        credentials = settings.security.server_credentials()
        if self._secret and credentials is None:
            logger.warning(
                "ggeur.join_secret is set without TLS: tokens travel in the clear and "
                "can be stolen on the way; set ggeur.tls.certificate and ggeur.tls.key"
            )
        handler = self._grpc.stream_stream_rpc_method_handler(self._serve)
        self._server = self._grpc.server(
            DaemonThreads(),
            handlers=[
                self._grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})
            ],
            options=server_options(settings),
            maximum_concurrent_rpcs=expected_clients + _SPARE_STREAMS,
        )
        self.port = self._bind(host, port, credentials)
        self._server.start()

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def receive(self, timeout: float | None = None) -> Event | None:
        """Wait for the next event; None after `timeout` seconds or once closed."""
        if timeout is not None:
            timeout = max(0.0, timeout)
        try:
            item = self._events.get(timeout=timeout)
        except Empty:
            return None
        if item is None:
            self._events.put(None)
            return None
        event, stream = item
        if stream is not None:
            stream.unread.give(event.envelope.size)
        return event

    def send(self, number: int, envelope: Envelope) -> bool:
        """Queue `envelope` for client `number`; False if that client has no stream.

        Raises
        ------
        MessageError
            If the message is larger than `max_message`.
        """
        frames = to_frames(envelope, self._settings)
        with self._lock:
            stream = self._joined.get(number)
            if stream is not None:
                stream.send(frames)
        return stream is not None

    def dismiss(self, number: int, reason: str) -> None:
        """End the stream of client `number` at once, if it has one.

        What is queued for it is dropped; its gone event follows what has arrived.
        """
        with self._lock:
            stream = self._joined.get(number)
        if stream is not None:
            self._retire(stream, Goodbye(reason, refused=True))

    def close(self, reason: str = "", grace: float = 10.0) -> None:
        """Let what is queued go out for at most `grace` seconds, then end everything.

        The clients see `HubClosed` with `reason`. Events that have arrived can still
        be received; afterwards `receive` returns None.
        """
        goodbye = Goodbye(reason)
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for number in self._joined:
                self._events.put((Event(number, None, "this server closed"), None))
            self._joined.clear()
            for stream in self._open:
                stream.end(goodbye, at_once=False)
        self._server.stop(grace).wait()
        self._events.put(None)

    def connected(self) -> set[int]:
        """The numbers of the clients that have a stream."""
        with self._lock:
            return set(self._joined)

    def _bind(self, host: str, port: int, credentials: Any) -> int:
        address = f"[{host}]:{port}" if ":" in host.strip("[]") else f"{host}:{port}"
        problem = ""
        try:
            if credentials is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:  # older releases of grpcio return 0
            bound, problem = 0, f" ({error})"
        if not bound:
            raise ConfigError(
                f"cannot listen on {address}: the port is taken or the address is not "
                "this machine's; change distribute.server_port or "
                f"distribute.server_host{problem}"
            )
        return bound

    def _serve(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """gRPC's handler of one stream: writes, while a thread of its own reads."""
        stream = Stream(context, self._settings.max_message)
        with self._lock:
            self._open.add(stream)
            if self._closed:
                stream.end(Goodbye("this server is closing", refused=True))
        try:
            context.add_callback(stream.unread.lift)
            reader = partial(self._read, stream, requests)
            threading.Thread(target=reader, name="hub reader", daemon=True).start()
            yield from stream.outgoing(self._patience)
            reason = stream.goodbye.reason[:_LONGEST_REASON].encode(errors="replace")
            context.set_trailing_metadata(((REASON, reason),))
            if stream.goodbye.refused:
                context.set_code(self._grpc.StatusCode.ABORTED)
        finally:
            stream.finish()
            with self._lock:
                self._open.discard(stream)

    def _read(self, stream: Stream, requests: Iterator[bytes]) -> None:
        try:
            join, introduction = read_join(requests, self._settings, stream.peer)
            self._admit(stream, join, introduction)
            sender = f"client {stream.number}"
            # gRPC shows a connection that broke as an end now, as an error then.
            goodbye = _BROKEN
            while envelope := read_envelope(requests, self._settings, sender):
                if envelope.kind == LEAVE:
                    goodbye = Goodbye("the client closed its stream")
                    break
                stream.unread.take(envelope.size)
                with self._lock:
                    if self._joined.get(stream.number) is stream:
                        self._events.put((Event(stream.number, envelope), stream))
        except GGEURError as error:
            goodbye = Goodbye(str(error), refused=True)
        except self._grpc.RpcError:
            goodbye = _BROKEN
        # Whatever a peer does to one stream must not end the server.
        except Exception:
            logger.exception("reading the stream of %s failed", stream.peer)
            goodbye = Goodbye("the server failed to read this stream", refused=True)
        self._retire(stream, goodbye)

    def _admit(self, stream: Stream, join: Envelope, who: Introduction) -> None:
        if self._secret is not None:
            problem = check_token(self._secret, who.number, who.token)
            if problem:
                raise Refused(problem)
        with self._lock:
            if stream.goodbye is not None:
                raise Refused(stream.goodbye.reason)
            if who.number in self._joined:
                raise Refused(
                    f"client {who.number} {ALREADY_JOINED}; every client needs its "
                    "own distribute.data_idx"
                )
            stream.number = who.number
            self._joined[who.number] = stream
            stream.send(to_frames(Envelope(WELCOME), self._settings))
            stream.unread.take(join.size)
            self._events.put((Event(who.number, join), stream))

    def _retire(self, stream: Stream, goodbye: Goodbye) -> None:
        goodbye = stream.goodbye or goodbye
        with self._lock:
            if self._joined.get(stream.number) is stream:
                del self._joined[stream.number]
                self._events.put((Event(stream.number, None, goodbye.reason), None))
        if not stream.number and not self._closed:
            logger.warning("%s was not admitted: %s", stream.peer, goodbye.reason)
        stream.end(goodbye)
