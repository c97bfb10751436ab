"""A client's end of the transport: its stream to the server, opened again if lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import chain
from queue import Empty, Queue  # SimpleQueue.get(timeout=0.0) may hang before 3.11
from typing import Any

from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.printable import get_logger

from . import streams
from .frames import ALIVE, LEAVE, Envelope, Introduction, read_envelope, to_frames
from .probe import handshake_problem
from .settings import (
    METHOD,
    REASON,
    SERVICE,
    TransportSettings,
    open_channel,
    require_grpc,
)

logger = get_logger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
# Seconds without an answer; after them a probe looks for the reason.
_PROBE_AFTER = 1.0
# Seconds between attempts at a place that is taken, and pauses after a lost connection.
_PAUSE = 1.0
_FIRST_REST, _LONGEST_REST = 0.5, 30.0
# After a connection that lasted so many seconds, counting begins anew.
_GOOD = 60.0
#: A client joins again at most this often in a row.
LIMIT = 20


def open_link(
    address: str,
    number: int,
    join: Envelope,
    settings: TransportSettings,
    again: bool = False,
) -> Link:
    """Join the server, which may start later.

    Parameters
    ----------
    address : str
        ``host:port`` of the server.
    number : int
        The client's number, from 1.
    join : Envelope
        The first message: its kind is ``"join_in"``, and it has at most 56 KiB.
    settings : TransportSettings
    again : bool
        Whether the client has joined this server before with these settings.

    Raises
    ------
    ConnectionLost
        No server admits the client within `settings.join_deadline` seconds, or TLS
        fails.
    Refused
        The server does not admit this client, with a reason.
    HubClosed
        The server is closing.
    ConfigError
        grpcio is missing, or a file of `settings.security` is invalid.
    MessageError
        A server would refuse the join message.
    """
    who = Introduction(number, settings.security.token())
    within = settings.join_deadline
    with ExitStack() as on_failure:
        channel = open_channel(address, settings)
        on_failure.callback(channel.close)
        deadline, pause = time.monotonic() + within, _FIRST_PAUSE
        while True:
            first = to_frames(join, settings, who)
            link = Link(channel, address, number, first, settings)
            try:
                if link.is_welcome(deadline, again):
                    on_failure.pop_all()
                    return link
                problem = "no server answered"
            except streams.ConnectionLost as error:
                if not link.may_be_tried_again:
                    raise
                problem = error.reason
            link.cancel()
            if time.monotonic() + pause > deadline:
                raise streams.ConnectionLost(
                    f"client {number} could not join the server at {address} "
                    f"within {within:g} s: {problem}; check that the server runs, "
                    "distribute.server_host and distribute.server_port, and that TLS "
                    "(ggeur.tls) is set at both ends or at neither"
                )
            time.sleep(pause)
            # A full server has a place again at any moment: no longer pauses for it.
            if not link.found_no_place:
                pause = min(2 * pause, _LONGEST_PAUSE)


class Link:
    """A client's stream to the server: one gRPC call. `open_link` makes it."""

    def __init__(
        self,
        channel: Any,
        address: str,
        number: int,
        first: Iterator[bytes],
        settings: TransportSettings,
    ):
        self._end: streams.StreamEnded | None = None
        self.may_be_tried_again = self.found_no_place = self._closing = False
        self._heard = time.monotonic()
        self._grpc = require_grpc()
        self._channel, self._settings = channel, settings
        self._address, self._number = address, number
        self._where = f"the stream of client {number} to the server at {address}"
        self._outbox: Queue[Iterator[bytes] | None] = Queue()
        self._inbox: Queue[Envelope | None] = Queue()
        self._unread = streams.Allowance(settings.max_message)
        self._outbox.put(first)
        method = channel.stream_stream(f"/{SERVICE}/{METHOD}")
        outgoing = chain.from_iterable(iter(self._outbox.get, None))
        self._call = method(outgoing, wait_for_ready=True)
        self._reader = threading.Thread(
            target=self._read, name="link reader", daemon=True
        )
        self._reader.start()

    def is_welcome(self, deadline: float, again: bool) -> bool:
        """Wait for the server's first message; False if none comes in time.

        Raises
        ------
        ConnectionLost
            TLS fails. The message says why.
        """
        while (left := deadline - time.monotonic()) > 0:
            if self.receive(min(left, _PROBE_AFTER)) is not None:
                return True
            if self._settings.http_proxy or again:
                # The probe would not go through the proxy. Or TLS has worked before: a
                # gateway that closes connections while the network is gone would look
                # like wrong settings.
                continue
            problem = handshake_problem(self._address, self._settings.security)
            if problem and self.receive(0.0) is None:
                self.cancel()
                raise streams.ConnectionLost(
                    f"client {self._number} cannot talk to the server at "
                    f"{self._address}: {problem}"
                )
        return False

    def receive(self, timeout: float | None = None) -> Envelope | None:
        """Wait for the next message; None after `timeout` seconds.

        Raises
        ------
        ConnectionLost
            The connection to the server broke, or this link is closed.
        Refused
            The server ended this client's stream.
        HubClosed
            The server closed in the ordinary way.
        """
        try:
            envelope = self._inbox.get(timeout=timeout)
        except Empty:
            return None
        if envelope is None:
            self._inbox.put(None)
            assert self._end is not None, "the reader has ended"
            raise self._end
        self._unread.give(envelope.size)
        return envelope

    @property
    def silence(self) -> float:
        """The seconds since the server's last message."""
        return time.monotonic() - self._heard

    def send(self, envelope: Envelope) -> None:
        """Queue `envelope`. Messages go out in the order in which they were queued.

        Raises
        ------
        ConnectionLost, Refused, HubClosed
            The stream has ended; see `receive`.
        MessageError
            The message is larger than `max_message`.
        """
        frames = to_frames(envelope, self._settings)
        if self._end is not None:
            raise self._end
        self._outbox.put(frames)

    def close(self, grace: float = 10.0) -> None:
        """Send queued messages for at most `grace` seconds, then end the stream.

        Messages that `receive` has not returned are lost.
        """
        self._closing = True
        self._unread.lift()
        self._outbox.put(to_frames(Envelope(LEAVE), self._settings))
        self._outbox.put(None)
        self._reader.join(grace)
        self.cancel()
        self._channel.close()

    def cancel(self) -> None:
        """End the call at once, but not its channel."""
        self._call.cancel()

    def _read(self) -> None:
        try:
            while envelope := read_envelope(self._call, self._settings, "the server"):
                self._heard = time.monotonic()
                if envelope.kind != ALIVE:
                    self._unread.take(envelope.size)
                    self._inbox.put(envelope)
            self._end = streams.HubClosed(
                self._reason() or "the server closed", self._where
            )
        except MessageError as error:
            self._call.cancel()
            self._end = streams.ConnectionLost(str(error), self._where)
        except self._grpc.RpcError as error:
            self._end = self._broken(error)
        if self._closing:
            self._end = streams.ConnectionLost("closed by this client", self._where)
        self._outbox.put(None)
        self._inbox.put(None)

    def _broken(self, error: Any) -> streams.StreamEnded:
        code, details = error.code(), error.details() or ""
        reason = self._reason()
        if reason is not None:
            return streams.Refused(reason, self._where)
        self.found_no_place = code is self._grpc.StatusCode.RESOURCE_EXHAUSTED
        self.may_be_tried_again = (
            self.found_no_place or code is self._grpc.StatusCode.UNAVAILABLE
        )
        return streams.ConnectionLost(
            f"broken off ({code.name}: {details})", self._where
        )

    def _reason(self) -> str | None:
        for key, value in self._call.trailing_metadata() or ():
            if key == REASON:
                # One line: a server's text must not look like lines of this program.
                return " ".join(value.decode(errors="replace").split())
        return None


class SiteLink:
    """One site's connection to the server at `address`.

    Parameters
    ----------
    address : str
        ``host:port``
    settings : TransportSettings
    patience : float
        After so many seconds without a word the server counts as lost.

    Attributes
    ----------
    link : Link or None
        The present stream.
    """

    def __init__(self, address: str, settings: TransportSettings, patience: float):
        self._address, self._settings = address, settings
        self._patience = patience
        self.link: Link | None = None

    def join(self, number: int, envelope: Envelope) -> None:
        """Join, or join again, as client `number`. Raises the errors of `open_link`."""
        again = self.link is not None
        logger.info("client %d joins the server at %s", number, self._address)
        until = time.monotonic() + self._settings.join_deadline
        self.close()
        while True:
            try:
                self.link = open_link(
                    self._address, number, envelope, self._settings, again
                )
                return
            except streams.Refused as error:
                # The server notices a silent loss only after a while.
                if not again or streams.ALREADY_JOINED not in error.reason:
                    raise
                if time.monotonic() > until:
                    raise
                time.sleep(_PAUSE)

    def send(self, envelope: Envelope) -> None:
        """Send a message, if the stream has not ended."""
        # Messages that arrived before the stream ended are read first: the end of the
        # run may be among them. After them `receive` raises the same error.
        assert self.link is not None, "the site has joined"
        with suppress(streams.StreamEnded):
            self.link.send(envelope)

    def receive(self) -> Envelope:
        """Wait for the server's next message.

        Raises
        ------
        GGEURError
            The server has sent nothing for ``ggeur.deadline.silence`` seconds.
        """
        link = self.link
        assert link is not None, "the site has joined"
        while (left := self._patience - link.silence) > 0:
            envelope = link.receive(left)
            if envelope is not None:
                return envelope
        raise GGEURError(
            f"the server at {self._address} has sent nothing for {self._patience:g} s "
            "(ggeur.deadline.silence), so it is lost; check the server and the network"
        )

    def close(self) -> None:
        """End the stream."""
        if self.link is not None:
            self.link.close()
            self.link = None


class Rejoining:
    """Joins again after each lost connection; pauses double up to half a minute."""

    def __init__(self) -> None:
        self._attempts, self._since = 0, time.monotonic()

    def until(self, step: Callable[[], bool], join: Callable[[], object]) -> None:
        """Call `step` until it returns True, and `join` after a lost connection."""
        while True:
            try:
                if step():
                    return
            except streams.ConnectionLost as error:
                logger.warning("%s; joining again", error)
                self.pause(error)
                join()
                self.joined()

    def pause(self, lost: streams.ConnectionLost) -> float:
        """Wait before joining again. Returns the seconds waited.

        Raises
        ------
        GGEURError
            Too many connections were lost in a row.
        """
        if time.monotonic() - self._since > _GOOD:
            self._attempts = 0
        if self._attempts == LIMIT:
            raise GGEURError(
                f"{lost}; this client joined again {LIMIT} times, and each "
                "connection was soon lost. Check the server, and the proxy before "
                "it if there is one"
            ) from lost
        seconds = min(_FIRST_REST * 2**self._attempts, _LONGEST_REST)
        self._attempts += 1
        time.sleep(seconds)
        return seconds

    def joined(self) -> None:
        """Note that a connection begins."""
        self._since = time.monotonic()
