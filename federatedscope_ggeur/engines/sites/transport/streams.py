"""The server's side of a stream: its limits, its wait to join, and how it ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass
from queue import Empty, Queue  # SimpleQueue.get(timeout=0.0) may hang before 3.11
from typing import Any

from federatedscope_ggeur.errors import GGEURError

#: Part of the reason when a number is taken.
ALREADY_JOINED = "has joined already"
# The seconds in which a dismissed client may still take messages on their way.
_LAST_WORDS = 5.0
# The bytes counted for a message in addition to its data.
_MESSAGE_COST = 1024
#: Streams that may wait at the same time, beside one for each client.
PLACES = 16
# At most so many warnings within so many seconds.
_WARNINGS, _SPAN = 20, 10.0


class StreamEnded(GGEURError):
    """An error that says that the stream to the server has ended.

    Parameters
    ----------
    reason : str
        The reason given by the side that ended the stream.
    where : str
        The stream's name, with which the message begins.
    """

    def __init__(self, reason: str, where: str = ""):
        self.reason = reason
        super().__init__(f"{where}: {reason}" if where else reason)


class ConnectionLost(StreamEnded):
    """The server could not be reached, or the connection to it broke."""


class Refused(StreamEnded):
    """The server ended this client's stream, with its reason."""


class HubClosed(StreamEnded):
    """The server closed all streams in the ordinary way."""


class Allowance:
    """Limits the unread bytes of one client; at the limit its stream pauses.

    Parameters
    ----------
    limit : int
        The limit in bytes. One message may always wait, whatever its length.
    """

    def __init__(self, limit: int):
        self._limit, self._used, self._lifted = limit, 0, False
        self._changed = threading.Condition()

    def take(self, size: int) -> None:
        """Wait until there is room for a message of `size` bytes, then count it."""
        size += _MESSAGE_COST
        with self._changed:
            while self._used and self._used + size > self._limit and not self._lifted:
                self._changed.wait()
            self._used += size

    def give(self, size: int) -> None:
        """Count a message of `size` bytes as read."""
        with self._changed:
            self._used -= size + _MESSAGE_COST
            self._changed.notify_all()

    def lift(self) -> None:
        """Wake all waiting threads, because the stream is over."""
        with self._changed:
            self._lifted = True
            self._changed.notify_all()


@dataclass(frozen=True)
class Goodbye:
    """The reason why the server ends a stream, and the kind of the end.

    `refused` says that the server refuses this client. `is_full` says that there was no
    room, so the client may try again.
    """

    reason: str
    refused: bool = False
    is_full: bool = False


class Stream:
    """The stream of one client, on the server's side.

    Parameters
    ----------
    context : gRPC's context of the call
    limit : int
        How many bytes of the client may wait unread.
    due : int
        How many bytes a message of the client may have at most, at first.

    Attributes
    ----------
    number : int
        The client's number; 0 until it has joined.
    connection : int
        The number of the stream among all that have joined.
    """

    def __init__(self, context: Any, limit: int, due: int):
        self.number, self.connection, self.due = 0, 0, due
        self.peer = context.peer()
        self.unread = Allowance(limit)
        self.goodbye: Goodbye | None = None
        self._cut = self._finished = False
        self._context = context
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        self._outbox: Queue[Iterator[bytes] | None] = Queue()

    def send(self, frames: Iterator[bytes]) -> None:
        """Queue a message."""
        self._outbox.put(frames)

    def end(self, goodbye: Goodbye, at_once: bool = True) -> None:
        """End the stream, at once or after all queued messages are sent.

        After the first call, further calls have no effect on the goodbye.
        """
        with self._lock:
            self.goodbye = self.goodbye or goodbye
            if at_once and not self._cut:
                self._cut = True
                if not self._finished:
                    # A peer that no longer reads would block the writer for ever.
                    timer = threading.Timer(_LAST_WORDS, self._context.cancel)
                    timer.daemon = True
                    timer.start()
                    self._timer = timer
        self._outbox.put(None)
        self.unread.lift()

    def outgoing(self, patience: float) -> Iterator[bytes]:
        """Yield the frames to send; the first must come within `patience` seconds."""
        timeout: float | None = patience
        while True:
            try:
                frames = self._outbox.get(timeout=timeout)
            except Empty:
                self.end(Goodbye(f"no join message within {patience:g} s", True))
                return
            timeout = None
            if frames is None:
                return
            for frame in frames:
                if self._cut:
                    return
                yield frame

    def finish(self) -> None:
        """Note that gRPC has finished the stream."""
        with self._lock:
            self._finished = True
            if self._timer is not None:
                self._timer.cancel()


class DaemonThreads(futures.Executor):
    """Runs a daemon thread for each stream, so that the process can end at any time.

    A `ThreadPoolExecutor` would wait for its threads at exit. gRPC limits the number of
    threads (`maximum_concurrent_rpcs`).
    """

    def submit(self, fn, /, *args, **kwargs) -> futures.Future:
        future: futures.Future = futures.Future()

        def work():
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, name="hub writer", daemon=True).start()
        return future


class WaitingRoom:
    """The streams that have sent no message yet, oldest first.

    If all places are taken, a new stream replaces the oldest one. A machine that has
    more than its share replaces its own oldest one. Proper clients send at once, so
    this affects only silent ones. The class is not thread-safe.

    Parameters
    ----------
    clients : int
        All of them may come from one machine.
    """

    def __init__(self, clients: int):
        self.places, self.share = PLACES + clients, PLACES // 2 + clients
        self._streams: dict[Stream, None] = {}

    def enter(self, stream: Stream) -> Stream | None:
        """Take a stream in; return the one that it replaces, if any."""
        own = [one for one in self._streams if _machine(one) == _machine(stream)]
        oldest = None
        if len(own) >= self.share:
            oldest = own[0]
        elif len(self._streams) >= self.places:
            oldest = next(iter(self._streams))
        if oldest is not None:
            del self._streams[oldest]
        self._streams[stream] = None
        return oldest

    def leave(self, stream: Stream) -> None:
        """Note that a stream has sent its message, or has ended."""
        self._streams.pop(stream, None)


def _machine(stream: Stream) -> str:
    """The other side's address, without its port."""
    return stream.peer.rpartition(":")[0]


class SparingLog:
    """A log with a limit, since strangers could flood it with warnings.

    It logs a limited number of warnings in each time span, and counts the others.
    """

    def __init__(self, logger: logging.Logger):
        self._logger = logger
        self._since, self._said, self._kept_back = 0.0, 0, 0
        self._lock = threading.Lock()

    def warning(self, text: str, *values: object) -> None:
        """Log a warning if the limit allows; otherwise count it."""
        with self._lock:
            now, more = time.monotonic(), 0
            if now - self._since > _SPAN:
                more, self._kept_back = self._kept_back, 0
                self._since, self._said = now, 0
            self._said += 1
            speaks = self._said <= _WARNINGS
            self._kept_back += not speaks
        if more:
            self._logger.warning("%d more warnings like those before", more)
        if speaks:
            self._logger.warning(text, *values)
