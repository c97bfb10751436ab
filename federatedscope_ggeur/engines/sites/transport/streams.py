"""The server's side of a stream, and a limit on unread bytes from a client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass
from queue import Empty, Queue  # SimpleQueue.get(timeout=0.0) may hang before 3.11
from typing import Any

# The seconds in which a dismissed client may still take messages on their way.
_LAST_WORDS = 5.0
# The bytes counted for a message in addition to its data.
_MESSAGE_COST = 1024


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
