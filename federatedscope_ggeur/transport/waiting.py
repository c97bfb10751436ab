"""Streams that have not joined yet, and a log that strangers cannot flood."""

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

    If all places are taken, a new stream replaces the oldest. A proper client joins
    within a moment; a silent one has to make room. Not thread-safe.
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
    """Warnings that strangers cause: a limited number per time span, then only a
    count."""

    def __init__(self, logger: logging.Logger):
        self._logger = logger
        self._since, self._said, self._kept_back = 0.0, 0, 0
        self._lock = threading.Lock()

    def warning(self, text: str, *values: object) -> None:
        """As `logging.Logger.warning`, if the limit allows it; else count it."""
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
