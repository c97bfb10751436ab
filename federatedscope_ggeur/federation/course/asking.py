"""One request to clients and their answers: who is waited for, what is taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.course.membership import Membership
from federatedscope_ggeur.federation.exchanges.base import (
    Absence,
    Exchange,
    Request,
    RequestKind,
    Requests,
    Spent,
)
from federatedscope_ggeur.federation.sampling import in_client_order
from federatedscope_ggeur.printable import get_logger

logger = get_logger(__name__)


class Asking:
    """Asks clients, counts bytes, and refuses answers that cannot be used.

    Parameters
    ----------
    exchanges : sequence of Exchange
        Those of the run.
    membership : Membership
    last_round : int
    dismiss : callable (client number, reason)
        Called when a client's message is refused.
    """

    def __init__(
        self,
        exchanges: Sequence[Exchange],
        membership: Membership,
        last_round: int,
        dismiss: Callable[[int, str], None],
    ):
        self._exchanges = {k.name: one for one in exchanges for k in one.KINDS}
        self._membership, self._last_round = membership, last_round
        self._dismiss = dismiss
        self._refusal: MessageError | None = None
        self._down = self._up = 0

    def spent(self) -> Spent:
        """The time, and all bytes to and from the clients until now."""
        return Spent(time.perf_counter(), self._down, self._up)

    def tell(
        self, kind: RequestKind, number: int, parts: Mapping[int, tuple[bytes, ...]]
    ) -> Requests[None]:
        """Send clients something that needs no answer."""
        if parts:
            self._count_down(parts)
            yield Request(kind, number, parts)

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
        is_after = number > self._last_round
        when = f"{'calibration' if is_after else f'round {number}'}, {kind.name}"
        if not kind.patient:  # who is not there may come back to answer this
            members.check_quorum(when, self._refusal)
        if not parts:
            return []
        members.ask()
        request = Request(kind, number, parts)
        replies = yield request
        answers = []
        self._count_down(parts)
        for k in sorted(parts):
            # Each reply goes as it is decoded: a round's messages are not held twice.
            reply = replies.pop(k, Absence("no answer"))
            if isinstance(reply, Absence):
                put_out = members.miss(k, reply.reason, reply.connected)
                if put_out:
                    logger.warning("client %d is %s", k, put_out)
                    self._dismiss(k, put_out)
                continue
            self._up += sum(map(len, reply))
            if sizes is not None:
                sizes[str(k)] = sum(map(len, reply))
            try:
                answers.append(self.decode(request, k, reply))
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
                unprepared = members.unprepared
                back = [k for k in members.here(back) if k not in unprepared]
            missing = {k: parts[k] for k in back}
            answers += yield from self.ask(kind, number, missing, sizes, again=False)
        return in_client_order(answers)

    def decode(self, request: Request, client: int, parts: Sequence[bytes]) -> Any:
        """What a client answered to `request`, once it is validated.

        Raises
        ------
        MessageError
            It cannot be used; names the client and the field.
        """
        kind, sender = request.kind, f"client {client}"
        exchange = self._exchanges[kind.name]
        if len(parts) != 1:
            raise MessageError(
                f"expected one part, got {len(parts)}", field="parts", sender=sender
            )
        answer = kind.answer.from_bytes(parts[0], kind.schema(exchange), sender)
        kind.validate(exchange, request, answer)
        declared = self._membership.declared.get(client)
        if declared is not None:
            kind.bound(declared, exchange, answer)
        return answer

    def largest_answer(self, kind: RequestKind) -> int | None:
        """Bytes of the longest answer to a request; None where nothing bounds it."""
        return kind.largest(self._exchanges[kind.name])

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

    def _count_down(self, parts: Mapping[int, tuple[bytes, ...]]) -> None:
        self._down += sum(len(part) for sent in parts.values() for part in sent)

    def _refuse(self, client: int, error: MessageError) -> None:
        logger.warning("%s", error)
        self._refusal = error
        if self._membership.is_over(client):
            return  # nobody is there to answer for it
        self._membership.leave(client, str(error))
        self._membership.conduct.strike(client, str(error))
        self._dismiss(client, str(error))
