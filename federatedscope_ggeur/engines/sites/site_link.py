"""A site's stream to its server, which is opened again when the server comes back."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.printable import get_logger

from .transport import (
    ALREADY_JOINED,
    ConnectionLost,
    Envelope,
    Link,
    Refused,
    StreamEnded,
)
from .transport.settings import TransportSettings

_PAUSE = 1.0  # s, between attempts to join again

logger = get_logger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # s
#: After a connection that lasted this long, counting begins anew.
_GOOD = 60.0  # s
#: A client joins again at most this often in a row.
LIMIT = 20


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
        """Join, or join again, as client `number`. Raises the errors of `Link`."""
        again = self.link is not None
        logger.info("client %d joins the server at %s", number, self._address)
        until = time.monotonic() + self._settings.join_deadline
        self.close()
        while True:
            try:
                self.link = Link(self._address, number, envelope, self._settings, again)
                return
            except Refused as error:
                # The server notices a silent loss only after a while.
                if not again or ALREADY_JOINED not in error.reason:
                    raise
                if time.monotonic() > until:
                    raise
                time.sleep(_PAUSE)

    def send(self, envelope: Envelope) -> None:
        """Send a message, if the stream has not ended."""
        # Messages that arrived before the stream ended are read first: the end of the
        # run may be among them. After them `receive` raises the same error.
        assert self.link is not None, "the site has joined"
        with suppress(StreamEnded):
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
            except ConnectionLost as error:
                logger.warning("%s; joining again", error)
                self.pause(error)
                join()
                self.joined()

    def pause(self, lost: ConnectionLost) -> float:
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
        seconds = min(_FIRST_PAUSE * 2**self._attempts, _LONGEST_PAUSE)
        self._attempts += 1
        time.sleep(seconds)
        return seconds

    def joined(self) -> None:
        """Note that a connection begins."""
        self._since = time.monotonic()
