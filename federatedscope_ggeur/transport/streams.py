"""One stream as its server holds it, and how much a peer may leave unread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

# Seconds that a client which is put out has left to take what is on its way to it.
_LAST_WORDS = 5.0
# What a message without data costs.
_MESSAGE_COST = 1024


class Allowance:
    """The bytes of one peer that may wait unread; beyond, its stream stands still.

    Parameters
    ----------
    limit : int
        One message may always wait, whatever its length.
    """

    def __init__(self, limit: int):
        self._limit, self._used, self._lifted = limit, 0, False
        self._changed = threading.Condition()

    def take(self, size: int) -> None:
        """Count a message of `size` bytes, as soon as there is room for it."""
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
        """Let nobody wait any more: the stream is over."""
        with self._changed:
            self._lifted = True
            self._changed.notify_all()


@dataclass(frozen=True)
class Goodbye:
    """How the server ends a stream: with which words, and whether as a refusal, or for
    want of room, which the client may try again."""

    reason: str
    refused: bool = False
    is_full: bool = False


class Stream:
    """One client's stream.

    Parameters
    ----------
    context : gRPC's context of the call
    limit : int
        Bytes that may wait unread.
    due : int
        Bytes that a message of the client may have, at first.

    Attributes
    ----------
    number : int
        The client's; 0 until it has joined.
    connection : int
        Its own, of all streams that have joined.
    """

    def __init__(self, context: Any, limit: int, due: int):
        self.number, self.connection, self.due = 0, 0, due
        self.peer = context.peer()
        self.unread = Allowance(limit)
        self.goodbye: Goodbye | None = None
        self._cut = self._finished = False
        self._context, self._timer = context, None
        self._lock = threading.Lock()
        self._outbox: SimpleQueue[Iterator[bytes] | None] = SimpleQueue()

    def send(self, frames: Iterator[bytes]) -> None:
        """Queue a message."""
        self._outbox.put(frames)

    def end(self, goodbye: Goodbye, at_once: bool = True) -> None:
        """End the stream, at once or when what is queued has gone out.

        The first goodbye is the one that counts.
        """
        with self._lock:
            self.goodbye = self.goodbye or goodbye
            if at_once and not self._cut:
                self._cut = True
                if not self._finished:
                    # A peer that has stopped reading would hold the writer for ever.
                    self._timer = threading.Timer(_LAST_WORDS, self._context.cancel)
                    self._timer.daemon = True
                    self._timer.start()
        self._outbox.put(None)
        self.unread.lift()

    def outgoing(self, patience: float) -> Iterator[bytes]:
        """The frames to write; the first message must be queued in `patience` s."""
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
        """Note that gRPC has done with the stream."""
        with self._lock:
            self._finished = True
            if self._timer is not None:
                self._timer.cancel()


class DaemonThreads(futures.Executor):
    """A thread for each stream, none of which keeps a process alive that ends.

    The threads of a `ThreadPoolExecutor` would: it joins them at exit. gRPC bounds
    their number (`maximum_concurrent_rpcs`).
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
