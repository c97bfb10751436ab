"""Who has joined the server worker, who is waited for, and who has gone."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from federatedscope_ggeur.cfg_ggeur.method_settings import agreed_settings
from federatedscope_ggeur.engines.fs.data import ServerSplits
from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.federation.course.checkpoint import checkpoint_client_domains
from federatedscope_ggeur.federation.course.coordinator import Coordinator
from federatedscope_ggeur.federation.messages.handshake import Handshake, Join

logger = logging.getLogger(__name__)


class Joining:
    """The clients of one server, before the run and while it goes on.

    Parameters
    ----------
    cfg : config of FS
    data : ServerSplits or None
        None where the server holds no data: what it must know comes with the clients.

    Attributes
    ----------
    joined : dict from client number to domain
    gone : dict from client number to the reason why its connection is over
    coordinator : Coordinator or None
        None until the run has started.
    """

    def __init__(self, cfg, data: ServerSplits | None):
        self._cfg, self._data = cfg, data
        self.joined: dict[int, str] = {}
        self.gone: dict[int, str] = {}
        self.coordinator: Coordinator | None = None
        self._settings = agreed_settings(cfg)
        self._handshake: Handshake | None = None
        if data is not None:
            self._handshake = Handshake(
                data.class_names, data.dim, data.encoder, self._settings
            )
        self._agreed_with = "the server"
        path = cfg.federate.restore_from
        self._expected = checkpoint_client_domains(path) if path else {}
        self._closed = False
        self._until = 0.0

    @property
    def started(self) -> bool:
        return self.coordinator is not None

    @property
    def complete(self) -> bool:
        """Whether everyone is there, or nobody is waited for any longer."""
        wanted = self._expected or range(1, self._cfg.federate.client_num + 1)
        return self._closed or all(number in self.joined for number in wanted)

    @property
    def here(self) -> list[int]:
        """The clients that are connected, late ones included."""
        return [number for number in sorted(self.joined) if number not in self.gone]

    def admit(self, join: Join) -> None:
        """Take a client in.

        Raises
        ------
        MessageError
            It does not fit the others, or the run began without it; the field says
            where.
        """
        number, sender = join.client, f"client {join.client}"
        client_domains = (
            self.coordinator.server.client_domains if self.started else self._expected
        )
        if client_domains:
            _check_known(join, client_domains, sender)
        elif number > self._cfg.federate.client_num:
            raise MessageError(
                f"{number}, but federate.client_num is {self._cfg.federate.client_num}",
                field="client",
                sender=sender,
            )
        self._check_handshake(join, sender)
        self.joined[number] = join.domain
        self.gone.pop(number, None)
        if self.started:
            self.coordinator.come_back(number)

    def _check_handshake(self, join: Join, sender: str) -> None:
        # Where the server holds no data, the first client says what they are.
        handshake = self._handshake or replace(join.handshake, settings=self._settings)
        difference = handshake.difference(join.handshake)
        if difference:
            raise MessageError(
                f"{difference} (at {self._agreed_with}); all sides must have it alike",
                field="agreement",
                sender=sender,
            )
        if self._handshake is None:
            self._handshake, self._agreed_with = handshake, sender

    def lose(self, number: int, reason: str) -> None:
        """A connection is gone: a client's, or that of one which was not admitted."""
        if not self.started:
            self.joined.pop(number, None)
            if not self.joined and self._data is None:
                self._handshake, self._agreed_with = None, "the server"
        elif number in self.joined:
            self.gone[number] = reason
            self.coordinator.leave(number, reason)

    def heard_from(self, number: int) -> None:
        """A late answer: the client is there after all, and free again."""
        if self.started and number in self.coordinator.absent:
            logger.info("client %d is back", number)
            self.coordinator.come_back(number)

    def begin_waiting(self) -> None:
        self._until = time.monotonic() + self._cfg.ggeur.deadline.join

    def seconds_to_join(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def close_joining(self) -> None:
        """The deadline for joining is over.

        Raises
        ------
        GGEURError
            Fewer clients than ``ggeur.quorum`` are there; names the missing.
        """
        self._closed = True
        wanted = list(self._expected or range(1, self._cfg.federate.client_num + 1))
        missing = [number for number in wanted if number not in self.joined]
        quorum = int(self._cfg.ggeur.quorum)
        quorum = len(wanted) if quorum == -1 else quorum
        logger.warning(
            "clients %s have not joined within %g s (ggeur.deadline.join)",
            missing,
            self._cfg.ggeur.deadline.join,
        )
        if len(self.joined) < max(quorum, 1):
            raise GGEURError(
                f"joining: {len(self.joined)} of {len(wanted)} clients have joined "
                f"within {self._cfg.ggeur.deadline.join:g} s (ggeur.deadline.join) and "
                f"ggeur.quorum asks for {quorum}. Missing: clients {missing}"
            )


def _check_known(join: Join, client_domains: Mapping[int, str], sender: str) -> None:
    """One of the clients that the run began with, of the domain it had."""
    if join.client not in client_domains:
        raise MessageError(
            "the run began without it; it can take part in the next run",
            field="client",
            sender=sender,
        )
    if client_domains[join.client] != join.domain:
        raise MessageError(
            f"{join.domain!r}, but it joined as {client_domains[join.client]!r} before",
            field="domain",
            sender=sender,
        )
