"""How a stream can end, as its client sees it."""

from __future__ import annotations

from federatedscope_ggeur.errors import GGEURError


class StreamEnded(GGEURError):
    """The stream to the server is over.

    Parameters
    ----------
    reason : str
        Why, in the words of whoever ended it.
    where : str
        Which stream it was; goes before the reason.
    """

    def __init__(self, reason: str, where: str = ""):
        self.reason = reason
        super().__init__(f"{where}: {reason}" if where else reason)


class ConnectionLost(StreamEnded):
    """The server could not be reached, or it or the network went away."""


class Refused(StreamEnded):
    """The server ended this client's stream, with its reason."""


class HubClosed(StreamEnded):
    """The server closed all streams in the ordinary way."""
