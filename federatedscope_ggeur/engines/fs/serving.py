"""The server worker's loop in distributed mode: joining, deadlines, lost clients."""

from __future__ import annotations

import logging

from federatedscope.core.message import Message

from federatedscope_ggeur.engines.fs.channel import SERVER

logger = logging.getLogger(__name__)


class ServesStreams:
    """`run` of a worker that has a `federation`, an `_exchange` and a hub."""

    def run(self):
        """Distributed mode: lead the federation to its end.

        Raises
        ------
        GGEURError
            Too few clients joined or are left (``ggeur.quorum``); it names the missing.
        """
        hub = self.comm_manager.hub
        try:
            self._await_clients(hub)
            while not self.is_finish:
                event = hub.receive(self._driver.seconds_left())
                if event is None:
                    self._driver.give_up()
                else:
                    self._take(event)
        except BaseException as error:
            reason = str(error) or type(error).__name__
            hub.close(f"the server ended the run: {reason}")
            raise
        hub.close()

    def _await_clients(self, hub) -> None:
        self.federation.begin_waiting()
        while not self.federation.started:
            event = hub.receive(self.federation.seconds_to_join())
            if event is None:
                self.federation.close_joining()
                self.trigger_for_start()
            else:
                self._take(event)

    def _take(self, event) -> None:
        envelope = event.envelope
        if envelope is None:
            self._lose(event.number, event.reason)
            return
        message = Message(
            msg_type=envelope.kind,
            sender=event.number,
            receiver=[SERVER],
            state=envelope.state,
            content=envelope.parts,
        )
        handler = self.msg_handlers.get(envelope.kind)
        if handler is None:
            self._dismiss(event.number, f"unknown message type {envelope.kind!r:.80}")
            return
        self._monitor.track_download_bytes(sum(map(len, envelope.parts)))
        handler(message)

    def _lose(self, number: int, reason: str) -> None:
        logger.warning("client %d is gone: %s", number, reason)
        self.federation.lose(number, reason)
        self._driver.gone(number, reason)
