"""The server's end of the transport: one port, with one stream for each client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from queue import Empty, Queue  # SimpleQueue.get(timeout=0.0) may hang before 3.11
from typing import Any

from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.printable import get_logger

from . import streams
from .frames import (
    ALIVE,
    LEAVE,
    WELCOME,
    Envelope,
    Introduction,
    read_envelope,
    read_join,
    to_frames,
)
from .settings import (
    JOIN_PATIENCE,
    METHOD,
    REASON,
    SERVICE,
    TransportSettings,
    require_grpc,
    server_options,
)

logger = get_logger(__name__)

# Room for more streams than may join or wait: a refused client must learn why.
_SPARE_STREAMS = 64
# Characters: gRPC carries a reason in a header of at most 8 KiB.
_LONGEST_REASON = 1000
_MADE_ROOM = streams.Goodbye(
    "too many streams are waiting to join; try again", is_full=True
)
#: The reason of an end without a goodbye.
BROKEN = (
    "the connection broke off: the client's process or the network ended it, or a "
    "frame was longer than this server allows"
)
_BROKEN = streams.Goodbye(BROKEN)


@dataclass(frozen=True)
class Event:
    """A message that a hub has received, or the end of a stream.

    Attributes
    ----------
    number : int
        The number under which the client joined.
    envelope : Envelope or None
        The client's message; None if its stream is gone.
    reason : str
        The reason why the stream has ended.
    refused : bool
        Whether the stream has ended because this server refused a message.
    connection : int
        The number of the stream among all that have ever joined, from 1.
    """

    number: int
    envelope: Envelope | None
    reason: str = ""
    refused: bool = field(default=False, compare=False)
    connection: int = field(default=0, compare=False)


class Hub:
    """The server of the transport, which listens as soon as it is made.

    Parameters
    ----------
    host : str
        The address of this machine to listen on, e.g. ``"0.0.0.0"``.
    port : int
        The port; 0 takes any free port. The attribute `port` has the number in use.
    expected_clients : int
        The number of clients that the server waits for.
    settings : TransportSettings
    due : int, optional
        How many bytes a client's message may have at most, until `expect` is called.
        The default is `settings.max_message`.

    Raises
    ------
    ConfigError
        grpcio is missing, the port is taken, or a file of `settings.security` is
        invalid.
    """

    def __init__(
        self,
        host: str,
        port: int,
        expected_clients: int,
        settings: TransportSettings,
        due: int | None = None,
    ):
        self._due = settings.max_message if due is None else due
        self._grpc = require_grpc()
        self._settings = settings
        self._patience = min(settings.join_deadline, JOIN_PATIENCE)
        self._lock = threading.Lock()
        self._closed, self._ending = False, threading.Event()
        self._expected = expected_clients
        self._waiting = streams.WaitingRoom(expected_clients)
        self._log = streams.SparingLog(logger)
        self._open: set[streams.Stream] = set()
        self._joined: dict[int, streams.Stream] = {}
        self._connections = count(1)
        self._events: Queue[tuple[Event, streams.Stream | None] | None] = Queue()
        credentials = settings.security.server_credentials()
        if settings.security.secret() and credentials is None:
            logger.warning(
                "ggeur.join_secret is set without TLS, so tokens are not encrypted "
                "and can be stolen on the network; set ggeur.tls.certificate and "
                "ggeur.tls.key"
            )
        joining = self._grpc.stream_stream_rpc_method_handler(self._serve)
        service = self._grpc.method_handlers_generic_handler(SERVICE, {METHOD: joining})
        self._server = self._grpc.server(
            streams.DaemonThreads(),
            handlers=[service],
            options=server_options(settings),
            maximum_concurrent_rpcs=(
                expected_clients + self._waiting.places + _SPARE_STREAMS
            ),
        )
        self.port = self._bind(host, port, credentials)
        self._server.start()
        threading.Thread(target=self._beat, name="hub pulse", daemon=True).start()

    def receive(self, timeout: float | None = None) -> Event | None:
        """Wait for the next event; None after `timeout` seconds or on a closed hub."""
        try:
            item = self._events.get(timeout=timeout)
        except Empty:
            return None
        if item is None:
            self._events.put(None)
            return None
        event, stream = item
        if stream is not None and event.envelope is not None:
            stream.unread.give(event.envelope.size)
        return event

    def send(self, number: int, envelope: Envelope) -> bool:
        """Queue `envelope` for client `number`; False if this client has no stream.

        Raises
        ------
        MessageError
            The message is larger than `max_message`.
        """
        frames = to_frames(envelope, self._settings)
        with self._lock:
            stream = self._joined.get(number)
            if stream is not None:
                stream.send(frames)
        return stream is not None

    def expect(self, number: int, size: int | None) -> None:
        """Limit messages of client `number` to `size` bytes from now on.

        None sets the limit back to `max_message`. A longer message ends the stream
        before its data is read.
        """
        with self._lock:
            stream = self._joined.get(number)
            if stream is not None:
                stream.due = self._settings.max_message if size is None else size

    def dismiss(self, number: int, reason: str, connection: int | None = None) -> None:
        """End the stream of client `number` at once, if it has one.

        With `connection`, only the stream with this number is ended. Messages queued
        for the client are dropped. The event of the end comes after the messages that
        have arrived.
        """
        with self._lock:
            stream = self._joined.get(number)
        if stream is not None and connection in (None, stream.connection):
            self._retire(
                stream, streams.Goodbye(reason, refused=True), is_dismissed=True
            )

    def close(self, reason: str = "", grace: float = 10.0) -> None:
        """Send queued messages for at most `grace` seconds, then end all streams.

        Clients get `HubClosed` with `reason`. `receive` still returns the events that
        have arrived, and then None.
        """
        goodbye = streams.Goodbye(reason)
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._ending.set()
            for number in self._joined:
                self._events.put((Event(number, None, "this server closed"), None))
            self._joined.clear()
            for stream in self._open:
                stream.end(goodbye, at_once=False)
        self._server.stop(grace).wait()
        self._events.put(None)

    def _beat(self) -> None:
        """Send all clients regular signs that this server is running."""
        while not self._ending.wait(self._settings.keepalive):
            with self._lock:
                for stream in self._joined.values():
                    stream.send(to_frames(Envelope(ALIVE), self._settings))

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
        """Handle one stream for gRPC: this thread writes, and a second one reads."""
        stream = streams.Stream(context, self._settings.max_message, self._due)
        with self._lock:
            self._open.add(stream)
            oldest = self._waiting.enter(stream)
            if oldest is not None:
                oldest.end(_MADE_ROOM)
            if self._closed:
                stream.end(streams.Goodbye("this server is closing", refused=True))
        if oldest is not None:
            self._log.warning(
                "more than %d streams are waiting to join, so the oldest, of "
                "%s, was closed",
                self._waiting.places,
                oldest.peer,
            )
        try:
            context.add_callback(stream.unread.lift)
            reader = partial(self._read, stream, requests)
            threading.Thread(target=reader, name="hub reader", daemon=True).start()
            yield from stream.outgoing(self._patience)
            assert stream.goodbye is not None, "nothing more goes out"
            self._say_why(context, stream.goodbye)
        finally:
            stream.finish()
            with self._lock:
                self._open.discard(stream)
                self._waiting.leave(stream)

    def _say_why(self, context: Any, goodbye: streams.Goodbye) -> None:
        if goodbye.is_full:
            context.set_code(self._grpc.StatusCode.RESOURCE_EXHAUSTED)
            context.set_details(goodbye.reason)
            return
        reason = goodbye.reason[:_LONGEST_REASON].encode(errors="replace")
        context.set_trailing_metadata(((REASON, reason),))
        if goodbye.refused:
            context.set_code(self._grpc.StatusCode.ABORTED)

    def _read(self, stream: streams.Stream, requests: Iterator[bytes]) -> None:
        try:
            join, introduction = read_join(requests, self._settings, stream.peer)
            self._admit(stream, join, introduction)
            sender = f"client {stream.number}"
            # gRPC reports a broken connection as an end or as an error.
            goodbye = _BROKEN
            take = partial(read_envelope, requests, self._settings, sender)
            while envelope := take(lambda: stream.due):
                if envelope.kind == LEAVE:
                    goodbye = streams.Goodbye("the client closed its stream")
                    break
                stream.unread.take(envelope.size)
                with self._lock:
                    if self._joined.get(stream.number) is stream:
                        self._put(stream, envelope)
        except GGEURError as error:
            goodbye = streams.Goodbye(str(error), refused=True)
        except self._grpc.RpcError:
            goodbye = _BROKEN
        # Whatever a peer does to one stream must not end the server.
        except Exception:
            logger.exception("reading the stream of %s failed", stream.peer)
            goodbye = streams.Goodbye(
                "the server failed to read this stream", refused=True
            )
        self._retire(stream, goodbye)

    def _admit(self, stream: streams.Stream, join: Envelope, who: Introduction) -> None:
        if problem := self._settings.security.refusal(who.number, who.token):
            raise streams.Refused(problem)
        if who.number > self._expected:
            raise streams.Refused(
                f"client {who.number} is none of the {self._expected} clients of this "
                "server; correct distribute.data_idx or ggeur.client_number"
            )
        with self._lock:
            if stream.goodbye is not None:
                raise streams.Refused(stream.goodbye.reason)
            if who.number in self._joined:
                raise streams.Refused(
                    f"client {who.number} {streams.ALREADY_JOINED}; every client "
                    "needs a number of its own: a site needs its own folder from "
                    "`ggeur certificates` (ggeur.client_number), not a copy; where "
                    "clients share one data set, it is distribute.data_idx"
                )
            stream.number, stream.connection = who.number, next(self._connections)
            self._waiting.leave(stream)
            self._joined[who.number] = stream
            stream.send(to_frames(Envelope(WELCOME), self._settings))
            stream.unread.take(join.size)
            self._put(stream, join)

    def _put(self, stream: streams.Stream, envelope: Envelope) -> None:
        event = Event(stream.number, envelope, connection=stream.connection)
        self._events.put((event, stream))

    def _retire(
        self,
        stream: streams.Stream,
        goodbye: streams.Goodbye,
        is_dismissed: bool = False,
    ) -> None:
        ours = stream.goodbye  # this server ended it itself, not because of a message
        goodbye = ours or goodbye
        with self._lock:
            if self._joined.get(stream.number) is stream:
                del self._joined[stream.number]
                refused = ours is None and goodbye.refused and not is_dismissed
                gone = Event(stream.number, None, goodbye.reason, refused)
                self._events.put((gone, None))
        if not stream.number and not self._closed and not goodbye.is_full:
            self._log.warning("%s was not admitted: %s", stream.peer, goodbye.reason)
        stream.end(goodbye)
