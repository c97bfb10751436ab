"""Communication managers for FederatedScope (FS) that use the plugin's streams.

In standalone mode FS's own queue carries the messages. In distributed mode these
managers take the place of ``gRPCCommManager``, which unpickles received bytes. They
have those of its methods that these workers use, and send no pickles.
"""

from __future__ import annotations

from collections.abc import Sequence

from federatedscope.core.message import Message

from federatedscope_ggeur.cfg_ggeur.keys import DeadlineKeys, read
from federatedscope_ggeur.federation.wire.schema import PLAIN

from ..sites.leading import JOIN
from ..sites.roles import transport_settings
from ..sites.transport import Envelope, Hub
from ..sites.transport.link import SiteLink

SERVER = 0


def message(
    kind: str,
    state: int,
    parts: Sequence[bytes],
    sender: int = SERVER,
    receivers: Sequence[int] = (SERVER,),
) -> Message:
    """FS's message with these parts."""
    return Message(
        msg_type=kind,
        sender=sender,
        receiver=list(receivers),
        state=state,
        timestamp=0,
        content=tuple(parts),
    )


class ServerManager:
    """The server's end: sends FS's messages over a `Hub`."""

    def __init__(self, host: str, port: int, client_num: int, cfg):
        self.hub = Hub(host, port, client_num, transport_settings(cfg), PLAIN)

    def send(self, message: Message) -> None:
        for number in message.receiver:
            self.hub.send(number, _envelope(message))


class ClientManager:
    """A client's end: sends FS's messages over a `SiteLink`."""

    def __init__(self, host: str, port: int, cfg):
        settings = transport_settings(cfg)
        patience = read(cfg.ggeur, DeadlineKeys).silence
        self._link = SiteLink(f"{host}:{port}", settings, patience)

    def send(self, message: Message) -> None:
        if message.msg_type == JOIN:
            self._link.join(message.sender, _envelope(message))
        else:
            self._link.send(_envelope(message))

    def receive(self) -> Message:
        """Wait for the server's next message; raises the errors of `SiteLink`."""
        envelope = self._link.receive()
        return message(envelope.kind, envelope.state, envelope.parts)

    def close(self) -> None:
        self._link.close()


def _envelope(message: Message) -> Envelope:
    return Envelope(message.msg_type, message.state, tuple(message.content))
