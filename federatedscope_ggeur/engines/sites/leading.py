"""Leads a federation by its clients' messages, on any transport."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from federatedscope_ggeur.cfg_ggeur.keys import DeadlineKeys, DistributedKeys, read
from federatedscope_ggeur.errors import MessageError, without_folders
from federatedscope_ggeur.federation.course.coordinator import Ending
from federatedscope_ggeur.federation.exchanges import Absence, Request, RequestKind
from federatedscope_ggeur.federation.exchanges.base import all_kinds
from federatedscope_ggeur.federation.wire.handshake import Join
from federatedscope_ggeur.federation.wire.schema import PLAIN
from federatedscope_ggeur.printable import get_logger

from .driver import Driver, now
from .federation import DistributedRun, course
from .transport import BROKEN, JOIN, Envelope, Event
from .watch import server_status

logger = get_logger(__name__)

#: Message types besides JOIN and those of requests and answers. All but the last are
#: FederatedScope's own.
CONVERGED, FINISH, FAILED = "converged", "finish", "failed"
#: The reason that clients get when a person stops the server: no error of theirs.
STOPPED = "the operator of the server ended the run"


def failed(reason: str, state: int = 0) -> Envelope:
    """The message that says why its sender stops."""
    return Envelope(FAILED, state, (reason.encode(),))


def reason_of(parts: Sequence[bytes]) -> str:
    """The reason in such a message, on one line: nobody writes lines of a log."""
    return " ".join(b"".join(parts)[:1000].decode(errors="replace").split())


#: Takes a client's message: its number, the round, the parts.
Handler = Callable[[int, int, Sequence[bytes]], None]


class Connections(Protocol):
    """The server's connections to its clients; see `transport.Hub`."""

    def receive(self, timeout: float | None) -> Event | None: ...
    def send(self, number: int, envelope: Envelope) -> object: ...
    def expect(self, number: int, most: int | None) -> None: ...
    def dismiss(self, number: int, reason: str, connection: int | None) -> None: ...
    def close(self, reason: str = "") -> None: ...


class Leading:
    """Passes clients' messages to membership, driver and course.

    Parameters
    ----------
    federation : DistributedRun
    send : callable (kind, client numbers, parts, round)
        Sends a message.
    deadlines : DeadlineKeys
    begin : callable ()
        Begins the course. It is called once, when all expected clients have joined.
    hub : Connections or None
        None if all clients are in this process. Then a client that does not fit shows a
        wrong setting, and the run ends.
    clock : callable () -> float
        The time in seconds, from which deadlines count.
    find : callable (kind) -> Handler or None, optional
        Returns what takes a kind of message. By default it is taken here.

    Attributes
    ----------
    federation : DistributedRun
    driver : Driver
    """

    def __init__(
        self,
        federation: DistributedRun,
        send: Callable[[str, Sequence[int], tuple[bytes, ...], int], None],
        deadlines: DeadlineKeys,
        begin: Callable[[], None],
        hub: Connections | None,
        clock: Callable[[], float] = now,
        find: Callable[[str], Handler | None] | None = None,
    ):
        self.federation, self._members = federation, federation.membership
        federation.dismiss = self.dismiss
        self._send, self._begin, self._hub = send, begin, hub
        self._clock, self._join_seconds = clock, deadlines.join
        self._join_until: float | None = None
        seconds = {kind: getattr(deadlines, kind.deadline) for kind in all_kinds()}
        self.driver = Driver(self._send_request, seconds, deadlines.returning, clock)
        #: By client's number, the connection that was heard last.
        self._connections: dict[int, int] = {}
        answers = {
            kind.answer_message: partial(self.answer, kind)
            for kind in all_kinds()
            if kind.answer_message
        }
        own: dict[str, Handler] = {JOIN: self.join, FAILED: self.fail, **answers}
        self._find = find or own.get

    # what clients send

    def join(self, number: int, state: int, parts: Sequence[bytes]) -> None:
        """Let a client join, or join again after its connection was lost.

        Raises
        ------
        MessageError
            The client does not fit, and all clients are in this process.
        """
        members = self._members
        try:
            if len(parts) != 1:
                raise MessageError(
                    f"a message to join has one part, got {len(parts)}",
                    field="parts",
                    sender=f"client {number}",
                )
            join = Join.from_bytes(parts[0], sender=f"client {number}")
            refused = members.admit(join)
        except MessageError as error:
            if self._hub is None:
                raise
            refused = {number: error}
        self._refuse(refused)
        if number in refused:
            return
        logger.info(
            "client %d (domain %s) has joined: %d of %d",
            number,
            join.domain,
            len(members.joined),
            members.awaited,
        )
        if members.started:
            self.driver.back(number)
        elif members.complete:
            self._begin()

    def answer(
        self, kind: RequestKind, number: int, state: int, parts: Sequence[bytes]
    ) -> None:
        """Take a client's answer: in time, late or not asked for."""
        if self.driver.waits_for(number, kind, state):
            # Before it is taken: the last of all answers is used at once.
            self._members.note_answer(number)
        if self.driver.answer(number, kind, state, tuple(parts)):
            return
        if self.driver.was_owed(number, kind, state):
            self._members.heard_from(number)
        elif self._hub is not None:
            self._strike(
                number, f"an answer ({kind.name}, round {state}) that nobody asked for"
            )

    def fail(self, number: int, state: int, parts: Sequence[bytes]) -> None:
        """Take a client's message that says why it stops."""
        # The log names the client already.
        reason = reason_of(parts).removeprefix(f"client {number}: ")
        self.lose(number, reason, may_return=False)
        self.dismiss(number, "this client has said that it stops")

    def lose(self, number: int, reason: str, may_return: bool = True) -> None:
        """Record that a client's connection is lost.

        One that broke, and did not end with a goodbye, may be there again soon.
        """
        logger.warning("client %d is gone: %s", number, reason)
        members = self._members
        members.lose(number, reason)
        barred = number in members.conduct.barred
        # If numbers prove no identity, the true owner of the number may still come.
        is_missed = barred and not members.proven and members.is_short
        may_return = may_return and (not barred or is_missed)
        is_broken = reason == BROKEN and not barred
        self.driver.gone(number, reason, may_return, is_missed, is_broken)

    def put_out(self, number: int, reason: str) -> None:
        """Bar a client that a person has put out, and wait for it no longer."""
        members = self._members
        members.conduct.bar(number, reason)
        self.lose(number, reason, may_return=False)
        self._refuse(members.put_out(number))
        if not members.started:
            members.check_all_left()
            if members.complete:
                self._begin()

    def dismiss(self, number: int, reason: str) -> None:
        """End the connection on which a client's last message came.

        A later connection of this client is kept.
        """
        if self._hub is not None:
            self._hub.dismiss(number, reason, self._connections.get(number))

    def _refuse(self, refusals: Mapping[int, MessageError]) -> None:
        """Refuse clients that cannot take part, and end their connections."""
        for number, error in refusals.items():
            logger.warning("%s", error)
            self.dismiss(number, str(error))

    def _strike(self, number: int, what: str) -> bool:
        """Count an invalid message; returns whether the client is barred."""
        reason = self._members.conduct.strike(number, what)
        if reason:
            logger.warning("client %d is %s", number, reason)
            self.dismiss(number, reason)
        return bool(reason)

    # what it sends

    def _send_request(self, request: Request) -> dict[int, Absence]:
        gone = self._members.gone
        if self._hub is not None:
            most = self.federation.coordinator.asking.largest_answer(request.kind)
            most = None if most is None else max(most, PLAIN)
            for number in request.parts.keys() - gone.keys():
                self._hub.expect(number, most)
        by_content: dict[tuple, list[int]] = {}
        there = {k: sent for k, sent in request.parts.items() if k not in gone}
        for number, parts in there.items():
            by_content.setdefault(tuple(map(id, parts)), []).append(number)
        for numbers in by_content.values():
            parts = request.parts[numbers[0]]
            self._send(request.kind.message, numbers, parts, request.round_number)
        return {k: Absence(gone[k]) for k in request.parts if k in gone}

    def send_finals(self, ending: Ending, state: int) -> None:
        """End the run: send each client its final model and the `ending`."""
        finals = self.federation.history.finals()
        alike: dict[int, list[int]] = {}
        for k in self._members.connected:
            alike.setdefault(id(finals[k]), []).append(k)
        for numbers in alike.values():
            parts = finals[numbers[0]].to_bytes(), ending.to_bytes()
            self._send(FINISH, numbers, parts, state)

    def status(self) -> dict:
        """The content of the status file; see `server_status`."""
        history = getattr(self.federation, "history", None)
        return server_status(self._members, self.driver, history)

    # a run over connections

    def run(self, is_over: Callable[[], bool]) -> None:
        """Lead the federation until it `is_over`.

        Raises
        ------
        GGEURError
            Too few clients joined or are left (``ggeur.quorum``). The error names the
            missing ones.
        """
        hub = self._hub
        assert hub is not None, "clients are in processes of their own"
        try:
            while not is_over():
                self.take(hub.receive(self.seconds_left()))
        except BaseException as error:
            stopped = isinstance(error, KeyboardInterrupt)
            if self.federation.is_begun:  # before clients are told, which may take long
                try:
                    self.federation.write_unfinished(stopped)
                except Exception as second:  # the first error is the one to raise
                    logger.warning("not all files could be written: %s", second)
            reason = without_folders(str(error)) or type(error).__name__
            hub.close(STOPPED if stopped else f"the server ended the run: {reason}")
            raise
        hub.close()

    def seconds_left(self) -> float | None:
        """The seconds until the wait for clients or for answers ends; None: no end."""
        if self._members.started:
            return self.driver.seconds_left()
        if self._join_until is None:
            self._join_until = self._clock() + self._join_seconds
        return max(0.0, self._join_until - self._clock())

    def take(self, event: Event | None) -> None:
        """Take what has happened; None: a wait is over.

        Raises
        ------
        GGEURError
            Too few clients joined or are left.
        """
        members = self._members
        if event is not None:
            self._take(event)
            if not members.started:
                members.check_all_left()
        elif members.started:
            self.driver.give_up()
        else:
            self._refuse(members.close(self._join_seconds))
            self._begin()

    def _take(self, event: Event) -> None:
        envelope, number = event.envelope, event.number
        barred = self._members.conduct.barred
        if envelope is None:
            self.lose(number, event.reason)
            if event.refused and number not in barred:
                self._strike(number, event.reason)
            self._members.disconnect(number)
            return
        is_first = self._connections.get(number) != event.connection
        if number in barred and not is_first:
            return  # the client sent this before it was barred
        self._connections[number] = event.connection
        if envelope.kind == JOIN and not is_first:
            self._strike(number, "a second message to join on one connection")
            return
        handler = self._find(envelope.kind)
        if handler is None:
            problem = f"unknown message type {envelope.kind!r:.80}"
            if not self._strike(number, problem):
                self.dismiss(number, problem)
            return
        handler(number, envelope.state, envelope.parts)


class Leader:
    """Leads a federation over a hub by itself: from the first client to the last model.

    Parameters
    ----------
    cfg : CfgNode
        The server's settings.
    federation : DistributedRun
    hub : Connections
    write : callable (DistributedRun) -> str
        Writes the results of the finished run; returns their table.
    clock : callable () -> float

    Attributes
    ----------
    leading : Leading
    table : str or None
        The table of results; None until the run is over.
    """

    def __init__(
        self,
        cfg,
        federation: DistributedRun,
        hub: Connections,
        write: Callable[[DistributedRun], str] = lambda one: one.write("finished"),
        clock: Callable[[], float] = now,
    ):
        self.table: str | None = None
        self._write = write
        self._shares = read(cfg.ggeur, DistributedKeys).share_results
        self._hub, seconds = hub, read(cfg.ggeur, DeadlineKeys)
        self.leading = Leading(federation, self._send, seconds, self._start, hub, clock)

    def lead(self) -> str:
        """Lead the run to its end; returns the table. See `Leading.run`."""
        self.leading.run(lambda: self.table is not None)
        assert self.table is not None, "the run is over"
        return self.table

    def _send(
        self, kind: str, numbers: Sequence[int], parts: tuple[bytes, ...], state: int
    ) -> None:
        for number in numbers:
            self._hub.send(number, Envelope(kind, state, tuple(parts)))

    def _start(self) -> None:
        federation = self.leading.federation
        federation.start()
        self.leading.driver.start(course(federation), self._end)

    def _end(self, _) -> None:
        federation = self.leading.federation
        table, history = self._write(federation), federation.history
        self.leading.send_finals(history.ending(self._shares), len(history.rounds))
        self.table = table
