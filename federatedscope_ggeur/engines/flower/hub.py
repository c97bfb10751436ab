"""The server's connections to residents, over Flower's Grid."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from itertools import count

from flwr.app import Message
from flwr.serverapp import Grid

from federatedscope_ggeur.engines.flower.carried import (
    DONE,
    NOBODY,
    RESTARTED,
    packed,
    unpacked,
)
from federatedscope_ggeur.engines.flower.records import content_of, read_content
from federatedscope_ggeur.engines.leading import FAILED, JOIN
from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.exchanges.base import all_kinds
from federatedscope_ggeur.federation.wire.handshake import Join
from federatedscope_ggeur.federation.wire.limits import PLAIN
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.transport import Envelope, Event, Refused, check_token
from federatedscope_ggeur.transport.settings import TransportSettings

logger = get_logger(__name__)

#: Seconds between two looks for replies, and for nodes.
_PULL, _LOOK = 0.2, 2.0
#: Seconds until a node is asked again who is there: after its resident did not answer,
#: and after its resident was sent away. Then it may have another one.
_AGAIN, _MUCH_LATER = 5.0, 30.0
#: Seconds in which residents must take the last message of a finished run, and of a
#: failed one. The server does not wait for SuperNodes that are gone.
_LAST, _LAST_FAILED = 300.0, 30.0


@dataclass(eq=False)
class _Node:
    """A SuperNode, and the client that its resident answers for.

    When the connection ends, a new one of the same id takes its place.
    """

    id: int
    #: The time at which it may be asked, and the session that was sent away before.
    ask_at: float = 0.0
    refused: bytes = NOBODY
    is_asked: bool = False
    number: int | None = None
    session: bytes = NOBODY
    connection: int = 0
    most: int | None = PLAIN
    #: Messages that need no answer. They go out with the next one that does.
    waiting: list[Envelope] = field(default_factory=list)

    def __str__(self) -> str:
        known = self.number is not None
        return f"client {self.number}" if known else f"SuperNode {self.id}"


class GridHub:
    """Connections to residents, with the interface of `transport.Hub`.

    Every request is one Flower message to one SuperNode. A connection lasts as long as
    the same resident answers behind the same SuperNode.

    Parameters
    ----------
    grid : Grid
    settings : TransportSettings
    greeting : tuple of bytes
        The parts of the message that asks who is there.
    secret : bytes, optional
        The secret that join tokens are made from. Without it, clients need no token.
    """

    def __init__(
        self,
        grid: Grid,
        settings: TransportSettings,
        greeting: tuple[bytes, ...],
        secret: bytes | None = None,
    ):
        self._grid, self._settings, self._secret = grid, settings, secret
        self._greeting = Envelope(JOIN, 0, greeting)
        self._answered = {k.message for k in all_kinds() if k.answer_message}
        self._events: deque[Event] = deque()
        self._nodes: dict[int, _Node] = {}
        self._clients: dict[int, _Node] = {}
        #: By message, the node that owes a reply.
        self._pending: dict[str, _Node] = {}
        self._connections, self._look_at = count(1), 0.0

    # called by `Leading`

    def receive(self, timeout: float | None) -> Event | None:
        """Wait for what happens next; None after `timeout` seconds."""
        until = float("inf") if timeout is None else time.monotonic() + timeout
        while not self._events:
            self._look()
            self._pull()
            if not self._events:
                left = until - time.monotonic()
                if left <= 0:
                    return None
                time.sleep(min(_PULL, left))
        return self._events.popleft()

    def expect(self, number: int, most: int | None) -> None:
        """Set the largest size of the client's next answer, in bytes."""
        if number in self._clients:
            self._clients[number].most = most

    def send(self, number: int, envelope: Envelope) -> None:
        """Send a client a message.

        A message that needs no answer goes out with the next one that does.
        """
        node = self._clients.get(number)
        if node is None:
            return
        node.waiting.append(envelope)
        if envelope.kind in self._answered:
            self._flush(node)

    def dismiss(self, number: int, reason: str, connection: int | None) -> None:
        """End a client's connection, and tell its resident why."""
        node = self._clients.get(number)
        if node is not None and connection in (None, node.connection):
            self._send_away(node, reason)

    def close(self, reason: str = "") -> None:
        """Send what remains, or the `reason` of a failure; wait until it is taken."""
        for node in list(self._clients.values()):
            if reason:
                node.waiting = [_failed(reason)]
            if node.waiting:
                self._flush(node)
        until = time.monotonic() + (_LAST_FAILED if reason else _LAST)
        while self._pending and time.monotonic() < until:
            self._look(asks=False)
            self._pull()
            time.sleep(_PULL)

    # nodes

    def _look(self, asks: bool = True) -> None:
        """See which SuperNodes are there, and ask new ones for their clients."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK
        there = set(self._grid.get_node_ids())
        for gone in self._nodes.keys() - there:
            self._lose(self._nodes.pop(gone), "its SuperNode is gone")
            owed = self._pending.items()
            self._pending = {one: node for one, node in owed if node.id != gone}
        for new in there - self._nodes.keys():
            self._nodes[new] = _Node(new)
        for node in list(self._nodes.values()) if asks else ():
            if node.number is None and not node.is_asked and now >= node.ask_at:
                node.is_asked, node.waiting = True, [self._greeting]
                self._flush(node)

    def _is_current(self, node: _Node) -> bool:
        return self._nodes.get(node.id) is node

    def _lose(
        self, node: _Node, reason: str, refused: bool = False, pause: float = _AGAIN
    ) -> None:
        """Record that a connection has ended."""
        if node.number is None:
            logger.info("%s: %s", node, reason)
        else:
            gone = Event(node.number, None, reason, refused, node.connection)
            self._events.append(gone)
        self._forget(node, _MUCH_LATER if refused else pause)

    def _send_away(self, node: _Node, reason: str) -> None:
        """Tell a resident why it cannot take part."""
        node.waiting = [_failed(reason)]
        self._flush(node)
        self._forget(node, _MUCH_LATER, node.session)

    def _forget(self, node: _Node, pause: float, refused: bytes = b"") -> None:
        """Forget what is known of a node, and ask it again after `pause` seconds."""
        if self._clients.get(node.number) is node:
            del self._clients[node.number]
        if node.id in self._nodes:
            ask_at = time.monotonic() + pause
            self._nodes[node.id] = _Node(node.id, ask_at, refused or node.refused)

    # messages

    def _flush(self, node: _Node) -> None:
        """Send a node the messages that wait for it."""
        data = packed(node.session, node.waiting, self._settings)
        node.waiting = []
        message = Message(content_of(data), node.id, "query")
        (sent,) = self._grid.push_messages([message]) or (None,)
        if sent is None:
            self._lose(node, "Flower's SuperLink refused a message to it")
        else:
            self._pending[sent] = node

    def _pull(self) -> None:
        if not self._pending:
            return
        for message in self._grid.pull_messages(list(self._pending)):
            node = self._pending.pop(message.metadata.reply_to_message_id, None)
            if node is not None and self._is_current(node):
                self._take(node, message)

    def _take(self, node: _Node, message: Message) -> None:
        most = self._settings.max_message if node.most is None else node.most
        try:
            if message.has_error():
                reason = " ".join(str(message.error.reason).split())[:500]
                raise ConnectionError(f"Flower: {reason} ({message.error.code})")
            data = read_content(message.content)
            session, replies = unpacked(data, self._settings, str(node), lambda: most)
            for envelope in replies:
                if self._is_current(node):
                    self._take_reply(node, session, envelope)
        except ConnectionError as error:
            self._lose(node, str(error))
        except MessageError as error:
            self._lose(node, str(error), refused=True)

    def _take_reply(self, node: _Node, session: bytes, envelope: Envelope) -> None:
        if envelope.kind == DONE:
            return
        if node.number is None:
            self._take_join(node, session, envelope)
        elif envelope.kind == RESTARTED:
            self._lose(node, "its resident was started anew", pause=0.0)
        else:
            event = Event(node.number, envelope, connection=node.connection)
            self._events.append(event)

    def _take_join(self, node: _Node, session: bytes, envelope: Envelope) -> None:
        if envelope.kind == FAILED:
            reason = b"".join(envelope.parts)[:500].decode(errors="replace")
            logger.warning("%s: its resident does not join: %s", node, reason)
            self._forget(node, _MUCH_LATER)
            return
        if session == node.refused:
            self._forget(node, _MUCH_LATER)
            return
        node.session = session
        try:
            number, join = self._admitted(node, envelope)
        except (MessageError, Refused) as error:
            logger.warning("%s: %s", node, error)
            self._send_away(node, str(error))
            return
        other = self._clients.get(number)
        if other is not None and other.session != session:
            logger.warning("%s: client %d has joined already", node, number)
            self._forget(node, _AGAIN)
            return
        if other is not None:
            self._lose(other, "its resident answers behind another SuperNode now")
        node.number, node.connection = number, next(self._connections)
        self._clients[number] = node
        event = Event(number, Envelope(JOIN, 0, (join,)), connection=node.connection)
        self._events.append(event)

    def _admitted(self, node: _Node, envelope: Envelope) -> tuple[int, bytes]:
        """The number of the client that joins, and its message.

        Raises
        ------
        MessageError, Refused
            The message is not one to join, or the token is wrong.
        """
        if envelope.kind != JOIN or len(envelope.parts) != 2:
            raise MessageError(
                "the first message must be a join", field="kind", sender=str(node)
            )
        join, token = envelope.parts
        number = Join.from_bytes(join, str(node)).client
        if self._secret:
            text = token[:200].decode(errors="replace")
            if problem := check_token(self._secret, number, text):
                raise Refused(problem)
        return number, join


def _failed(reason: str) -> Envelope:
    return Envelope(FAILED, 0, (reason.encode(),))
