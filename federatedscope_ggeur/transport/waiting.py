"""Keeps streams that have not joined yet, and limits warnings about them."""

from __future__ import annotations

import logging
import threading
import time

from federatedscope_ggeur.transport.streams import Stream

#: Streams that may wait to join at the same time, beside one for each client.
PLACES = 16
# At most so many warnings within so many seconds.
_WARNINGS, _SPAN = 20, 10.0


class WaitingRoom:
    """The streams that have sent no join message yet, oldest first.

    If all places are taken, a new stream replaces the oldest one. Proper clients join
    at once, so this affects only silent ones. The class is not thread-safe.
    """

    def __init__(self, places: int):
        self.places = places
        self._streams: dict[Stream, None] = {}

    def enter(self, stream: Stream) -> Stream | None:
        """Take a stream in; return the stream that it replaces, if any."""
        oldest = None
        if len(self._streams) >= self.places:
            oldest = next(iter(self._streams))
            del self._streams[oldest]
        self._streams[stream] = None
        return oldest

    def leave(self, stream: Stream) -> None:
        """Note that a stream has joined or ended."""
        self._streams.pop(stream, None)


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
