"""The errors by which a client learns how its stream has ended."""

from __future__ import annotations

from federatedscope_ggeur.errors import GGEURError


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
