"""A distributed run, led by what arrives on the streams of its clients."""

from __future__ import annotations

import time

from federatedscope.core.message import Message

from federatedscope_ggeur.engines.fs.channel import JOIN, SERVER
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.transport import Event, Hub

logger = get_logger(__name__)


class DistributedRun:
    """Takes each event to the server worker, and puts out who does not behave.

    Parameters
    ----------
    worker : GGEURServer
    hub : Hub
    seconds : float
        How long clients are waited for to join.
    """

    def __init__(self, worker, hub: Hub, seconds: float):
        self._worker, self._hub, self._seconds = worker, hub, seconds
        self._members = worker.federation.membership
        #: By client's number, the connection that was heard last.
        self._connections: dict[int, int] = {}

    def run(self) -> None:
        """To the end of the run.

        Raises
        ------
        GGEURError
            Too few clients joined or are left (``ggeur.quorum``); it names the missing.
        """
        hub, worker = self._hub, self._worker
        try:
            self._await_clients()
            while not worker.is_finish:
                event = hub.receive(worker.driver.seconds_left())
                if event is None:
                    worker.driver.give_up()
                else:
                    self._take(event)
        except BaseException as error:
            reason = str(error) or type(error).__name__
            hub.close(f"the server ended the run: {reason}")
            raise
        hub.close()

    def strike(self, number: int, what: str) -> bool:
        """Note what a client should not have sent; whether it is put out for it."""
        reason = self._members.conduct.strike(number, what)
        if reason:
            logger.warning("client %d is %s", number, reason)
            self.dismiss(number, reason)
        return bool(reason)

    def dismiss(self, number: int, reason: str) -> None:
        """End the connection that a client was last heard on, and no later one."""
        self._hub.dismiss(number, reason, self._connections.get(number))

    def _await_clients(self) -> None:
        members, until = self._members, time.monotonic() + self._seconds
        while not members.started:
            event = self._hub.receive(max(0.0, until - time.monotonic()))
            if event is None:
                self._worker.refuse(members.close(self._seconds))
                self._worker.trigger_for_start()
            else:
                self._take(event)
                members.check_all_left()

    def _take(self, event: Event) -> None:
        envelope, number = event.envelope, event.number
        barred, worker = self._members.conduct.barred, self._worker
        if envelope is None:
            worker.lose(number, event.reason)
            if event.refused and number not in barred:
                self.strike(number, event.reason)
            self._members.disconnect(number)
            return
        is_first = self._connections.get(number) != event.connection
        if number in barred and not is_first:
            return  # what was on its way before it was put out
        self._connections[number] = event.connection
        if envelope.kind == JOIN and not is_first:
            self.strike(number, "a stream that joins a second time")
            return
        handler = worker.msg_handlers.get(envelope.kind)
        if handler is None:
            problem = f"unknown message type {envelope.kind!r:.80}"
            if not self.strike(number, problem):
                self.dismiss(number, problem)
            return
        worker.count_download(sum(map(len, envelope.parts)))
        handler(
            Message(
                msg_type=envelope.kind,
                sender=number,
                receiver=[SERVER],
                state=envelope.state,
                content=envelope.parts,
            )
        )
