"""Communication managers for FederatedScope (FS) that use the plugin's streams.

In standalone mode FS's own queue carries the messages. In distributed mode these
managers take the place of ``gRPCCommManager``, which unpickles received bytes. They
have the same methods but send no pickles.
"""

from __future__ import annotations

import time
from contextlib import suppress

from federatedscope.core.message import Message

from federatedscope_ggeur.engines.leading import JOIN
from federatedscope_ggeur.engines.streams import transport_settings
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation.wire.limits import PLAIN
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.transport import (
    ALREADY_JOINED,
    Envelope,
    Hub,
    Link,
    Refused,
    StreamEnded,
)

SERVER = 0
_PAUSE = 1.0  # s, between attempts to join again

logger = get_logger(__name__)


class _Manager:
    """The part of a communication manager that both ends share."""

    def __init__(self):
        self.neighbors: dict[int, object] = {}
        self.monitor = None

    def add_neighbors(self, neighbor_id, address=None) -> None:
        self.neighbors[neighbor_id] = address

    def get_neighbors(self, neighbor_id=None):
        if neighbor_id is None:
            return self.neighbors
        return self.neighbors[neighbor_id]


class ServerManager(_Manager):
    """The server's end: sends FS's messages over a `Hub`."""

    def __init__(self, host: str, port: int, client_num: int, cfg):
        super().__init__()
        settings = transport_settings(cfg)
        self.hub = Hub(host, port, client_num, settings, PLAIN)
        self.host, self.port = host, self.hub.port

    def send(self, message: Message) -> None:
        receivers = message.receiver
        if not isinstance(receivers, (list, tuple)):
            receivers = [receivers]
        for number in receivers:
            self.hub.send(number, _envelope(message))


class ClientManager(_Manager):
    """A client's end: a `Link` that is opened again when the server comes back."""

    def __init__(self, host: str, port: int, cfg):
        super().__init__()
        self.add_neighbors(SERVER, {"host": host, "port": port})
        self._address = f"{host}:{port}"
        self._settings = transport_settings(cfg)
        self._patience = cfg.ggeur.deadline.silence
        self.link: Link | None = None

    def send(self, message: Message) -> None:
        if message.msg_type == JOIN:
            self._join(message)
            return
        # Messages that arrived before the stream ended are read first: the end of the
        # run may be among them. After them `receive` raises the same error.
        with suppress(StreamEnded):
            self.link.send(_envelope(message))

    def _join(self, message: Message) -> None:
        again = self.link is not None
        number = message.sender
        logger.info("client %d joins the server at %s", number, self._address)
        until = time.monotonic() + self._settings.join_deadline
        self.close()
        while True:
            try:
                self.link = Link(
                    self._address, number, _envelope(message), self._settings, again
                )
                return
            except Refused as error:
                # The server notices a silent loss only after a while.
                if not again or ALREADY_JOINED not in error.reason:
                    raise
                if time.monotonic() > until:
                    raise
                time.sleep(_PAUSE)

    def receive(self) -> Message:
        """Wait for the server's next message.

        Raises
        ------
        GGEURError
            The server has sent nothing for ``ggeur.deadline.silence`` seconds.
        """
        link = self.link
        while (left := self._patience - link.silence) > 0:
            envelope = link.receive(left)
            if envelope is not None:
                break
        else:
            raise GGEURError(
                f"the server at {self._address} has sent nothing for "
                f"{self._patience:g} s (ggeur.deadline.silence), so it is lost; "
                "check the server and the network"
            )
        return Message(
            msg_type=envelope.kind,
            sender=SERVER,
            receiver=[],
            state=envelope.state,
            content=envelope.parts,
        )

    def close(self) -> None:
        if self.link is not None:
            self.link.close()
            self.link = None


def _envelope(message: Message) -> Envelope:
    return Envelope(message.msg_type, message.state, tuple(message.content))
