"""The ServerApp: leads the run over Flower's Grid."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.run_settings import use_threads
from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.federation.exchanges.base import all_kinds
from federatedscope_ggeur.federation.wire.handshake import Join
from federatedscope_ggeur.federation.wire.schema import PLAIN
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting.run_files import handled_by

from ..sites.connected import run_files
from ..sites.federation import DistributedRun
from ..sites.leading import FAILED, JOIN, Leader, failed
from ..sites.roles import server_data, transport_settings
from ..sites.transport import Envelope, Event, Refused, Security
from .records import content_of, envelopes_of

logger = get_logger(__name__)


#: Seconds between two looks for replies, and for nodes.
_PULL, _LOOK = 0.1, 2.0
#: Seconds until a node is asked again to join: after it was lost, and was refused.
_AGAIN, _MUCH_LATER = 5.0, 30.0
#: Seconds in which sites must take the last message of a finished run, and of a failed
#: one. The server does not wait for SuperNodes that are gone.
_LAST, _LAST_FAILED = 300.0, 30.0


def settings_in(federation: Mapping[str, Any], context: Context, *own: str):
    """The settings of the app, with those of ``flwr run -c`` and then `own`.

    This process changes to the folder that relative paths are seen from.
    """
    given = context.run_config
    os.chdir(str(given["folder"]))
    more = [*shlex.split(str(given["settings"])), *own]
    return load_config(federation, more, on_fs=True, beside=Path.cwd())


def server_app(federation: Mapping[str, Any]) -> ServerApp:
    """The ServerApp of a federation's app folder, with the federation's settings."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        if threading.current_thread() is threading.main_thread():  # not in simulation
            # Flower's own handler ends this process before any file is written.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        shown = logging.StreamHandler(sys.stdout)
        shown.setLevel(logging.INFO)
        try:
            with handled_by(shown):
                _lead(grid, settings_in(federation, context))
        except GGEURError as error:
            raise SystemExit(f"error: {error}") from error

    return app


def _lead(grid: Grid, cfg) -> None:
    """Lead the federation to its end."""
    use_threads(cfg)
    transport = transport_settings(cfg)
    goes_on, security = bool(cfg.federate.restore_from), transport.security
    hub = GridHub(grid, transport.max_message, goes_on, security)

    with run_files(cfg, "server") as (folder, watch):
        logger.info("run folder: %s", folder)
        data, proven = server_data(cfg), security.secret() is not None
        federation = DistributedRun(cfg, data, "flower", folder, proven, _to_go_on)
        leader = Leader(cfg, federation, hub)
        watch.describe = leader.leading.status
        logger.debug("%s", leader.lead())


def _to_go_on(path: Path) -> str:
    settings = f"settings='federate.restore_from {path.absolute()}'"
    return f'flwr run APP NAME -c "{settings}"'


@dataclass(eq=False)
class _Node:
    """A SuperNode, and the client that it answers for.

    Attributes
    ----------
    number : int or None
        The client's number once its site has joined.
    connection : int
        Another number whenever the node was lost or refused. Replies to messages of an
        earlier connection do not count.
    ask_at : float
        The time from which it may be asked to join.
    refusal : str
        Why it did not join before, which is logged once.
    most : int or None
        The largest size of its next answer in bytes.
    waiting : list of Envelope
        Messages that need no answer. They go out with the next one that does.
    """

    id: int
    connection: int
    number: int | None = None
    ask_at: float = 0.0
    refusal: str = ""
    most: int | None = PLAIN
    waiting: list[Envelope] = field(default_factory=list)

    def __str__(self) -> str:
        known = self.number is not None
        return f"client {self.number}" if known else f"SuperNode {self.id}"


class GridHub:
    """Connections to sites, with the interface of `transport.Hub`.

    Every request is one Flower message to one SuperNode.

    Parameters
    ----------
    grid : Grid
    most : int
        The size in bytes of the largest message.
    goes_on : bool
        Whether the run goes on from a checkpoint, so that sites keep their state.
    security : Security
        Knows who may join by which token.
    """

    def __init__(self, grid: Grid, most: int, goes_on: bool, security: Security):
        self._grid, self._most, self._security = grid, most, security
        self._greeting = Envelope(JOIN, int(goes_on))
        self._answered = {k.message for k in all_kinds() if k.answer_message}
        self._events: deque[Event] = deque()
        self._nodes: dict[int, _Node] = {}
        #: By message, the node that owes a reply, and its connection.
        self._pending: dict[str, tuple[_Node, int]] = {}
        self._connections, self._look_at = count(), 0.0

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
        if node := self._of(number):
            node.most = most

    def send(self, number: int, envelope: Envelope) -> None:
        """Send a client a message.

        A message that needs no answer goes out with the next one that does.
        """
        if node := self._of(number):
            node.waiting.append(envelope)
            if envelope.kind in self._answered:
                self._flush(node)

    def dismiss(self, number: int, reason: str, connection: int | None) -> None:
        """End a client's connection, and tell its site why."""
        node = self._of(number)
        if node is not None and connection in (None, node.connection):
            node.waiting = [failed(reason)]
            self._flush(node)
            self._forget(node, _MUCH_LATER)

    def close(self, reason: str = "") -> None:
        """Send what remains, or the `reason` of a failure; wait until it is taken."""
        for node in [one for one in self._nodes.values() if one.number is not None]:
            if reason:
                node.waiting = [failed(reason)]
            if node.waiting:
                self._flush(node)
        until = time.monotonic() + (_LAST_FAILED if reason else _LAST)
        while self._pending and time.monotonic() < until:
            self._look(asks=False)
            self._pull()
            time.sleep(_PULL)

    # nodes

    def _of(self, number: int) -> _Node | None:
        """The node of a client that has joined."""
        return next((n for n in self._nodes.values() if n.number == number), None)

    def _look(self, asks: bool = True) -> None:
        """See which SuperNodes are there, and ask new ones to join."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at, there = now + _LOOK, set(self._grid.get_node_ids())
        for gone in self._nodes.keys() - there:
            self._lose(self._nodes.pop(gone), "its SuperNode is gone")
            owed = self._pending.items()
            self._pending = {name: to for name, to in owed if to[0].id != gone}
        for new in there - self._nodes.keys():
            self._nodes[new] = _Node(new, next(self._connections))
        asked = {node.id for node, _ in self._pending.values()}
        for node in list(self._nodes.values()) if asks else ():
            if node.number is None and node.id not in asked and now >= node.ask_at:
                node.waiting = [self._greeting]
                self._flush(node)

    def _lose(self, node: _Node, reason: str, refused: bool = False) -> None:
        """Record that a connection has ended."""
        if node.number is not None:
            gone = Event(node.number, None, reason, refused, node.connection)
            self._events.append(gone)
        self._forget(node, _MUCH_LATER if refused else _AGAIN)

    def _forget(self, node: _Node, pause: float) -> None:
        """Forget a node's client, and ask it again to join after `pause` seconds."""
        node.number, node.ask_at = None, time.monotonic() + pause
        node.connection, node.most = next(self._connections), PLAIN

    # messages

    def _flush(self, node: _Node) -> None:
        """Send a node the messages that wait for it."""
        content, node.waiting = content_of(node.waiting), []
        message = Message(content, node.id, "query")
        (sent,) = self._grid.push_messages([message]) or (None,)
        if sent is None:
            self._lose(node, "Flower's SuperLink refused a message to it")
        else:
            self._pending[sent] = node, node.connection

    def _pull(self) -> None:
        if not self._pending:
            return
        for message in self._grid.pull_messages(list(self._pending)):
            owed = self._pending.pop(message.metadata.reply_to_message_id, None)
            if owed is not None and owed[0].connection == owed[1]:
                self._take(owed[0], message)

    def _take(self, node: _Node, message: Message) -> None:
        if message.has_error():
            reason = " ".join(str(message.error.reason).split())[:500]
            self._lose(node, f"Flower: {reason} ({message.error.code})")
            return
        most = self._most if node.most is None else node.most
        try:
            replies = envelopes_of(message.content, str(node), most)
            if node.number is None:
                self._admit(node, replies)
        except (MessageError, Refused) as error:
            if node.number is None and str(error) != node.refusal:
                logger.warning("%s: %s", node, error)
                node.refusal, node.waiting = str(error), [failed(str(error))]
                self._flush(node)
            self._lose(node, str(error), refused=True)
            return
        for envelope in replies:
            event = Event(node.number, envelope, connection=node.connection)
            self._events.append(event)

    def _admit(self, node: _Node, replies: list[Envelope]) -> None:
        """Take the client that a site joins as.

        Raises
        ------
        MessageError, Refused
            The site does not join, or its token or number is not right.
        """
        kinds = [one.kind for one in replies]
        if kinds == [FAILED]:
            reason = b"".join(replies[0].parts)[:500].decode(errors="replace")
            raise Refused(f"its site does not join: {reason}")
        if kinds != [JOIN] or len(replies[0].parts) != 2:
            raise Refused("its first message is no join")
        join, token = replies[0].parts
        number = Join.from_bytes(join, sender=str(node)).client
        text = token[:200].decode(errors="replace")
        if problem := self._security.refusal(number, text):
            raise Refused(problem)
        if self._of(number) is not None:
            raise Refused(f"client {number} has joined already")
        node.number, node.refusal = number, ""
        replies[:] = [Envelope(JOIN, 0, (join,))]
