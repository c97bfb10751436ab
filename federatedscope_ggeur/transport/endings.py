"""How a stream can end, as its client sees it."""

from __future__ import annotations

from federatedscope_ggeur.errors import GGEURError


class StreamEnded(GGEURError):
    """The stream to the server is over.

    Parameters
    ----------
    reason : str
        The reason that the side which ended the stream gave.
    where : str
        Which stream it was; the message begins with it.
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
