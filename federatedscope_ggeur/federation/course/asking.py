"""Sends one request to clients and collects their answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.printable import get_logger

from ..exchanges.base import (
    Absence,
    Carried,
    Exchange,
    Request,
    RequestKind,
    Requests,
    Spent,
)
from ..sampling import in_client_order
from .membership import Membership

logger = get_logger(__name__)

#: So many times a client that lost its connection is asked the same again.
AGAIN = 3
_NO_ANSWER = Absence("no answer")


class Asking:
    """Asks clients, counts bytes, and refuses unusable answers.

    Parameters
    ----------
    exchanges : sequence of Exchange
        The exchanges of the run.
    membership : Membership
    last_round : int
    dismiss : callable (client number, reason)
        Called when the server refuses a client's message. It ends the connection.
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
        """The time and the bytes to and from clients so far."""
        return Spent(time.perf_counter(), self._down, self._up)

    def tell(
        self, kind: RequestKind, number: int, parts: Mapping[int, tuple[bytes, ...]]
    ) -> Requests[None]:
        """Send a message that needs no answer."""
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
        again: int = AGAIN,
    ) -> Requests[list]:
        """Ask clients and return the usable answers, decoded, in client order.

        `sizes` receives the bytes of each answer, by client number as text.

        A client may lose its connection before it has answered, and come back before
        the others are done. The client is then asked once more, up to `again` times. If
        `welcome` is given, `welcome` prepares the client first. If the request needs
        all answers and one client drops out, the wait for the others ends; see
        `RequestKind.needs_all`.
        """
        members = self._membership
        is_after = number > self._last_round
        when = f"{'calibration' if is_after else f'round {number}'}, {kind.name}"
        if not kind.patient:  # An absent client may come back and answer this.
            members.check_quorum(when, self._refusal)
        if not parts:
            return []
        members.ask()
        request = Request(kind, number, parts)
        replies = yield request
        answers = []
        self._count_down(parts)
        awaited = [k for k in sorted(parts) if k in replies or not kind.needs_all]
        for k in awaited:
            # Each reply is freed once it is decoded: two copies would not fit.
            reply = replies.pop(k, _NO_ANSWER)
            if isinstance(reply, Absence):
                put_out = members.miss(k, reply.reason, reply.connected)
                if put_out:
                    logger.warning("client %d is %s", k, put_out)
                    self._dismiss(k, put_out)
                continue
            size = reply.size if isinstance(reply, Carried) else sum(map(len, reply))
            self._up += size
            if sizes is not None:
                sizes[str(k)] = size
            try:
                answers.append(self.decode(request, k, reply))
                members.accept(k)
            except MessageError as error:
                self._refuse(k, error)
            del reply
        if not kind.patient:
            members.check_quorum(when, self._refusal)
        back = members.here(sorted(parts.keys() - {a.client for a in answers}))
        if again and back and len(awaited) == len(parts):
            if welcome is not None:
                yield from welcome()
                unprepared = members.unprepared
                back = [k for k in members.here(back) if k not in unprepared]
            missing, again = {k: parts[k] for k in back}, again - 1
            answers += yield from self.ask(kind, number, missing, sizes, welcome, again)
        return in_client_order(answers)

    def decode(
        self, request: Request, client: int, parts: Sequence[bytes] | Carried
    ) -> Any:
        """Decode and validate a client's answer to `request`.

        Raises
        ------
        MessageError
            The answer is unusable. The error names the client and the field.
        """
        kind, sender = request.kind, f"client {client}"
        exchange = self._exchanges[kind.name]
        if isinstance(parts, Carried):
            answer = parts.answer
        elif len(parts) != 1:
            raise MessageError(
                f"expected one part, got {len(parts)}", field="parts", sender=sender
            )
        else:
            answer = kind.answer.from_bytes(parts[0], kind.schema(exchange), sender)
        kind.validate(exchange, request, answer)
        declared = self._membership.declared.get(client)
        if declared is not None:
            kind.bound(declared, exchange, answer)
        return answer

    def largest_answer(self, kind: RequestKind) -> int | None:
        """The size in bytes of the longest answer allowed; None without a limit."""
        return kind.largest(self._exchanges[kind.name])

    def put_out(self, findings: Mapping[int, str], when: str) -> None:
        """Refuse these clients' answers, and bar the clients for the rest of the run.

        Raises
        ------
        GGEURError
            Too few clients are left.
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
            return  # the connection is over, so nobody gets a strike
        self._membership.leave(client, str(error))
        self._membership.conduct.strike(client, str(error))
        self._dismiss(client, str(error))
