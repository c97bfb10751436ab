"""Runs a coordinator's requests by callbacks, for engines that receive messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from federatedscope_ggeur.federation.exchanges import (
    Absence,
    Request,
    RequestKind,
    Requests,
)
from federatedscope_ggeur.printable import get_logger

logger = get_logger(__name__)


#: So many seconds with a connection give a client one second of grace back.
_EARNED_IN = 10.0
#: Timers may end a little early.
_EARLY = 0.01


def now() -> float:
    """The time in seconds, which no change of the system's clock moves."""
    return time.monotonic()


class Grace:
    """How long a run waits for each client that has lost its connection.

    A client has `seconds` in all. Waiting for it uses them up, and time with a
    connection gives them back, at a tenth of its pace. So a client that is lost again
    and again costs the run at most a tenth of its time.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = now):
        self._seconds, self._clock = seconds, clock
        self._left: dict[int, float] = {}
        #: When each client came back, or was given up.
        self._since: dict[int, float] = {}
        #: Until when the run waits for the clients that are away.
        self._away: dict[int, float] = {}

    def begin(self, number: int) -> float:
        """A client is lost: the seconds that the run waits for it now."""
        present, left = self._clock(), self._seconds
        if number in self._left:
            earned = (present - self._since[number]) / _EARNED_IN
            left = min(self._seconds, self._left[number] + earned)
        if left > 0:
            self._away[number] = present + left
        return max(left, 0.0)

    def end(self, number: int) -> None:
        """A client is back, or nobody waits for it any longer."""
        until = self._away.pop(number, None)
        if until is not None:
            present = self._clock()
            self._left[number], self._since[number] = until - present, present

    def over(self) -> list[int]:
        """The clients whose time is over."""
        present = self._clock() + _EARLY
        return [k for k, until in self._away.items() if until <= present]

    def first_end(self) -> float | None:
        """When the first client's time is over; None if no client is away."""
        return min(self._away.values(), default=None)

    def __bool__(self) -> bool:
        """Whether the run waits for anybody."""
        return bool(self._away)


class Driver:
    """Runs the parts of a course: sends each request and collects the answers.

    Parameters
    ----------
    send : callable (Request) -> mapping from client number to Absence
        Sends a request to its clients. Returns the clients that cannot be reached.
    seconds : mapping from kind of request to seconds
        How long the driver waits for answers.
    grace : float
        The seconds that it waits for a client whose connection broke; see `Grace`.
    clock : callable () -> float
        The time in seconds.
    """

    def __init__(
        self,
        send: Callable[[Request], Mapping[int, Absence]],
        seconds: Mapping[RequestKind, float],
        grace: float,
        clock: Callable[[], float] = now,
    ):
        self._send, self._seconds, self._clock = send, seconds, clock
        self._grace = Grace(grace, clock)
        self._requests: Requests | None = None
        self._done: Callable[[Any], None] = lambda result: None
        self._request: Request | None = None
        self._replies: dict[int, tuple[bytes, ...] | Absence] = {}
        self._until = 0.0
        #: The awaited clients whose connection is lost, each with the reason.
        self._lost: dict[int, str] = {}
        #: Requests that clients got in time but have not answered.
        self._owed: set[tuple[int, RequestKind, int]] = set()

    def start(self, requests: Requests, done: Callable[[Any], None]) -> None:
        """Start a part of the course; at its end `done` gets its result."""
        self._requests, self._done = requests, done
        self._advance(None)

    def answer(
        self,
        number: int,
        kind: RequestKind,
        round_number: int,
        parts: tuple[bytes, ...],
    ) -> bool:
        """Take an answer; returns False, and logs a line, if nobody waits for it."""
        if not self.waits_for(number, kind, round_number):
            logger.info(
                "client %d: an answer (%s, round %d) that nobody waits for is ignored",
                number,
                kind.name,
                round_number,
            )
            return False
        self._collect(number, parts)
        return True

    def waits_for(self, number: int, kind: RequestKind, round_number: int) -> bool:
        """Whether an answer of this kind and round belongs to the present request."""
        request = self._request
        return (
            request is not None
            and (kind, round_number) == (request.kind, request.round_number)
            and number in request.parts
            and number not in self._replies
        )

    def gone(
        self,
        number: int,
        reason: str,
        may_return: bool = True,
        is_missed: bool = False,
        is_broken: bool = False,
    ) -> None:
        """Note that a client's connection has ended, with the reason.

        The driver then no longer waits for this client. It goes on waiting in three
        cases: the present request is patient and the client `may_return`; `is_missed`
        says that the run would end without the client; or the connection `is_broken`
        and the client has grace left. In the last case it also sends no other request
        meanwhile. If the request needs all answers, the driver also stops waiting for
        the others.
        """
        self._owed = {owed for owed in self._owed if owed[0] != number}
        request = self._request
        if request is None:
            return
        awaited = number in request.parts and number not in self._replies
        if awaited and (is_missed or (request.kind.patient and may_return)):
            logger.warning("waiting for client %d to come back: %s", number, reason)
            self._lost[number] = reason
        elif may_return and is_broken and (seconds := self._grace.begin(number)):
            logger.warning(
                "waiting %.0f s for client %d to come back: %s", seconds, number, reason
            )
            if awaited:
                self._lost[number] = reason
        elif awaited:
            self._collect(number, Absence(reason), is_last=request.kind.needs_all)

    def back(self, number: int) -> None:
        """Note that a client is back.

        If the driver waits for the client and the request is patient, the client is
        asked again at once.
        """
        self._grace.end(number)
        request, lost = self._request, self._lost.pop(number, None)
        if request is None:
            return
        if lost is None:
            self._advance_if_ready()
            return
        if not request.kind.patient:
            self._collect(number, Absence(lost))
            return
        parts = {number: request.parts[number]}
        again = Request(request.kind, request.round_number, parts)
        for k, absence in self._send(again).items():
            self._collect(k, absence)

    def was_owed(self, number: int, kind: RequestKind, round_number: int) -> bool:
        """Whether this is the first late answer of a client to a request."""
        owed = number, kind, round_number
        if owed not in self._owed:
            return False
        self._owed.remove(owed)
        return True

    @property
    def waiting(self) -> tuple[str, int, list[int]] | None:
        """The present request's name, round and missing clients, or None."""
        request = self._request
        if request is None:
            return None
        missing = [k for k in list(request.parts) if k not in self._replies]
        return request.kind.name, request.round_number, missing

    def seconds_left(self) -> float | None:
        """The seconds until the present request's deadline; None without one."""
        if self._request is None:
            return None
        ends = [self._grace.first_end(), None if self._has_all else self._until]
        first = min(end for end in ends if end is not None)
        return max(0.0, first - self._clock())

    def give_up(self) -> None:
        """Go on without the missing clients, because the deadline is over."""
        request = self._request
        if request is None:
            return
        if over := self._grace.over():
            for number in over:
                logger.warning("client %d is not waited for any longer", number)
                self._grace.end(number)
                lost = self._lost.pop(number, None)
                if lost is not None:
                    absence = Absence(f"{lost}; it did not come back in time")
                    self._collect(number, absence, is_last=request.kind.needs_all)
            if self._request is request:
                self._advance_if_ready()
            return
        late = [k for k in request.parts if k not in self._replies]
        reason = (
            f"no answer ({request.kind.name}) within {self._seconds[request.kind]:g} s"
        )
        for number in late:
            logger.warning("client %d: %s", number, reason)
            lost = self._lost.pop(number, None)
            if lost is not None:
                self._collect(number, Absence(f"{lost}; {reason}"))
                continue
            self._owed.add((number, request.kind, request.round_number))
            self._collect(number, Absence(reason, connected=True))

    def _collect(
        self, number: int, reply: tuple[bytes, ...] | Absence, is_last: bool = False
    ) -> None:
        self._replies[number] = reply
        if is_last:
            self._advance(self._replies)
        else:
            self._advance_if_ready()

    @property
    def _has_all(self) -> bool:
        """Whether each client has answered the present request or is given up."""
        request = self._request
        return request is not None and len(self._replies) == len(request.parts)

    def _advance_if_ready(self) -> None:
        """Go on if the driver waits for no answer and for no lost client."""
        if self._has_all and not self._grace:
            self._advance(self._replies)

    def _advance(self, replies) -> None:
        """Go on until the next request that clients must answer."""
        requests = self._requests
        assert requests is not None, "a part of the course has begun"
        while True:
            self._request, self._replies, self._lost = None, {}, {}
            try:
                request = requests.send(replies)
            except StopIteration as stop:
                done, self._requests = self._done, None
                done(stop.value)
                return
            waits = request.parts and request.kind.answer is not None
            if waits:
                self._request = request
                self._until = self._clock() + self._seconds[request.kind]
            if request.parts:
                absent = dict(self._send(request))
                if waits and request.kind.patient:
                    self._lost = {k: one.reason for k, one in absent.items()}
                    absent = {}
                self._replies.update(absent)
            if waits and len(self._replies) < len(request.parts):
                return
            replies = self._replies
