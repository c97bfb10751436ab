"""Keeps streams that have sent nothing yet, and limits warnings about them."""

from __future__ import annotations

import logging
import threading
import time

from .streams import Stream

#: Streams that may wait at the same time, beside one for each client.
PLACES = 16
# At most so many warnings within so many seconds.
_WARNINGS, _SPAN = 20, 10.0


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
