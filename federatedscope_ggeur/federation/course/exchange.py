"""One request to clients and their answers: who is waited for, what is taken."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.course.membership import Membership
from federatedscope_ggeur.federation.course.requests import (
    Absence,
    Request,
    RequestKind,
    Requests,
    decode_answer,
)
from federatedscope_ggeur.federation.sampling import in_client_order
from federatedscope_ggeur.federation.server import Server

logger = logging.getLogger(__name__)


class Exchange:
    """Asks clients, counts bytes, and refuses answers that cannot be used.

    Parameters
    ----------
    server : Server
    membership : Membership
    dismiss : callable (client number, reason)
        Called when a client's message is refused.

    Attributes
    ----------
    down, up : int
        Bytes to and from the clients since they were last set to 0.
    """

    def __init__(
        self,
        server: Server,
        membership: Membership,
        dismiss: Callable[[int, str], None],
    ):
        self._server, self._membership, self._dismiss = server, membership, dismiss
        self._refusal: MessageError | None = None
        self.down = self.up = 0

    def ask(
        self,
        kind: RequestKind,
        number: int,
        parts: Mapping[int, tuple[bytes, ...]],
        sizes: dict[str, int] | None = None,
        welcome: Callable[[], Requests[None]] | None = None,
        again: bool = True,
    ) -> Requests[list]:
        """Ask clients; the answers that can be used, decoded, in client order.

        `sizes` takes the bytes of each client's answer, by its number as text. A client
        that lost its connection meanwhile, and with it its answer, and that is back
        before the others are done, is asked `again`, once; where `welcome` prepares
        those that are back, only if it is prepared then.
        """
        members = self._membership
        is_after = number > self._server.settings.total_rounds
        when = f"{'calibration' if is_after else f'round {number}'}, {kind.name}"
        if not kind.patient:  # who is not there may come back to answer this
            members.check_quorum(when, self._refusal)
        if not parts:
            return []
        members.ask()
        request = Request(kind, number, parts)
        replies = yield request
        answers = []
        self.down += sum(len(part) for sent in parts.values() for part in sent)
        for k in sorted(parts):
            # Each reply goes as it is decoded: a round's messages are not held twice.
            reply = replies.pop(k, Absence("no answer"))
            if isinstance(reply, Absence):
                put_out = members.miss(k, reply.reason, reply.connected)
                if put_out:
                    logger.warning("client %d is %s", k, put_out)
                    self._dismiss(k, put_out)
                continue
            self.up += sum(map(len, reply))
            if sizes is not None:
                sizes[str(k)] = sum(map(len, reply))
            try:
                answers.append(decode_answer(self._server, request, k, reply))
                members.accept(k)
            except MessageError as error:
                self._refuse(k, error)
            del reply
        if not kind.patient:
            members.check_quorum(when, self._refusal)
        back = members.here(sorted(parts.keys() - {a.client for a in answers}))
        if again and back:
            if welcome is not None:
                yield from welcome()
                back = [k for k in members.here(back) if k not in members.unprepared]
            missing = {k: parts[k] for k in back}
            answers += yield from self.ask(kind, number, missing, sizes, again=False)
        return in_client_order(answers)

    def put_out(self, findings: Mapping[int, str], when: str) -> None:
        """Refuse what clients sent, and them for the rest of the run.

        Raises
        ------
        GGEURError
            Too few are left.
        """
        for client, reason in findings.items():
            error = MessageError(reason, field="screen", sender=f"client {client}")
            if not self._membership.is_over(client):
                self._membership.conduct.bar(client, str(error))
            self._refuse(client, error)
        if findings:
            self._membership.check_quorum(when, self._refusal)

    def _refuse(self, client: int, error: MessageError) -> None:
        logger.warning("%s", error)
        self._refusal = error
        if self._membership.is_over(client):
            return  # nobody is there to answer for it
        self._membership.leave(client, str(error))
        self._membership.conduct.strike(client, str(error))
        self._dismiss(client, str(error))
