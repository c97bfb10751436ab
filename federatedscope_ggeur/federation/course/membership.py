"""The clients of a federation: who joined, who is connected, who has left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from federatedscope_ggeur.errors import GGEURError, MessageError, setting
from federatedscope_ggeur.federation.course.agreement import Agreement
from federatedscope_ggeur.federation.course.strikes import Conduct
from federatedscope_ggeur.federation.wire.declared import Declared
from federatedscope_ggeur.federation.wire.handshake import Handshake, Join
from federatedscope_ggeur.printable import get_logger

logger = get_logger(__name__)


class Membership:
    """The clients of one federation, before its run and during it.

    Parameters
    ----------
    client_num : int
        Clients 1 to this number may join.
    quorum : int, optional
        How many clients must be there; by default all.
    settings : mapping
        The settings that all sides must have alike.
    handshake : Handshake, optional
        Everything that all sides must have alike. Without it the clients say what the
        data are, see `Agreement`.
    expected : mapping from client number to domain
        The clients of a restored run. No others may join.
    given : mapping, optional
        Fields of a handshake that the server knows without data, see `Agreement`.
    proven : bool
        Whether a client number proves an identity. It does within one process, and with
        tokens. If not, anybody may use a number, so faults of one connection do not bar
        the next.

    Attributes
    ----------
    joined : dict from client number to domain
    declared : dict from client number to what it declared of its data
    gone : dict from client number to the reason why its connection ended
    absent : dict from client number to the reason why it is asked for nothing
    on_domain : callable (client number, domain)
        Told of the domain of a client that joins.
    conduct : Conduct
        The faults of clients, and who is barred for them.
    """

    def __init__(
        self,
        client_num: int,
        quorum: int | None = None,
        settings: Mapping[str, str] | None = None,
        handshake: Handshake | None = None,
        expected: Mapping[int, str] | None = None,
        given: Mapping[str, Any] | None = None,
        proven: bool = True,
    ):
        self._wanted = sorted(expected or range(1, client_num + 1))
        self._quorum = len(self._wanted) if quorum is None else quorum
        self._expected = dict(expected or {})
        self._agreement = Agreement(len(self._wanted), settings or {}, handshake, given)
        self.joined: dict[int, str] = {}
        self.declared: dict[int, Declared] = {}
        self.gone: dict[int, str] = {}
        self.absent: dict[int, str] = {}
        self.on_domain: Callable[[int, str], None] = lambda number, domain: None
        self.conduct = Conduct()
        self.proven = proven
        # By number: the connections that have ended, now and when the client last
        # answered.
        self._turns: Counter[int] = Counter()
        self._answered: Counter[int] = Counter()
        self._accepted: set[int] = set()  # clients whose answers the run has used
        #: Since when clients are gone, and why clients that were here do not take part.
        self._gone_since: dict[int, float] = {}
        self._errors: dict[int, str] = {}
        self.started, self._closed = False, False
        self._participants: list[int] = []
        self._trains: frozenset[int] = frozenset()
        self._prepared: set[int] = set()
        self._unprepared: set[int] = set()
        self._missed: set[int] = set()  # clients that left since they last caught up
        # since the last request: clients that lost their connection, and clients that
        # came back
        self._lost: set[int] = set()
        self._back: set[int] = set()

    @classmethod
    def of(cls, client_domains: Mapping[int, str], quorum: int | None = None):
        """Clients of one process, all connected from the start."""
        membership = cls(len(client_domains), quorum, expected=client_domains)
        membership.joined = dict(client_domains)
        return membership

    # before the run

    @property
    def handshake(self) -> Handshake | None:
        """What all sides have in common; None until it is settled."""
        return self._agreement.handshake

    @property
    def agreed(self) -> dict[str, Any]:
        """The fields of it that are settled."""
        return self._agreement.known

    def expects(self, number: int) -> bool:
        """Whether a client of this number may join."""
        return number in self._wanted

    @property
    def client_domains(self) -> dict[int, str]:
        """The domain of each client of the run, by number."""
        return dict(sorted({**self._expected, **self.joined}.items()))

    @property
    def awaited(self) -> int:
        """How many clients may join."""
        return len(self._wanted)

    @property
    def complete(self) -> bool:
        """Whether the wait for clients is over."""
        return self._closed or all(number in self.joined for number in self._wanted)

    @property
    def connected(self) -> list[int]:
        """The connected clients, late ones included."""
        return [number for number in sorted(self.joined) if number not in self.gone]

    def admit(self, join: Join) -> dict[int, MessageError]:
        """Let a client join; why one may not is kept for `check_all_left`.

        Returns the refusals of earlier clients that do not fit the majority.

        Raises
        ------
        MessageError
            The client does not fit the others, or the run began without it. The error
            names the field.
        """
        try:
            refusals = self._admit(join)
        except MessageError as error:
            self._errors[join.client] = str(error)
            raise
        self._errors.pop(join.client, None)
        self._errors.update({k: str(error) for k, error in refusals.items()})
        return refusals

    def check_all_left(self) -> None:
        """Raise `GGEURError`, with what they said, if all clients came before the run
        and none could stay: nobody is left to wait for.
        """
        if self.started or self.joined or not set(self._wanted) <= self._errors.keys():
            return
        said = "; ".join(f"client {k}: {self._errors[k]}" for k in self._wanted)
        raise GGEURError(f"joining: all clients have left with an error: {said}")

    def standing(self) -> dict[str, str]:
        """How each client stands, by its number as text, for people and monitors."""
        found = {}
        for number in self._wanted:
            is_here = number in self.joined and number not in self.gone
            why = self.gone.get(number) or self._errors.get(number)
            how = f"lost: {why}" if why else "missing"
            found[str(number)] = "here" if is_here else how
        return found

    def _admit(self, join: Join) -> dict[int, MessageError]:
        number, sender = join.client, f"client {join.client}"
        known = self.client_domains if self.started else self._expected
        # The number proves nothing, and the run has used nothing from this client.
        is_open = not self.proven and number not in self._accepted | set(self._expected)
        if number in self.conduct.barred:
            problem = f"takes no further part: {self.conduct.barred[number]}"
            raise MessageError(problem, field="client", sender=sender)
        if known and number not in known:
            problem = "the run began without it; it can take part in the next run"
            raise MessageError(problem, field="client", sender=sender)
        if known and known[number] != join.domain and not is_open:
            problem = f"{join.domain!r}, but it joined as {known[number]!r} before"
            raise MessageError(problem, field="domain", sender=sender)
        if number not in self._wanted and not self.started:
            problem = f"{number}, but {setting('client_num')} is {len(self._wanted)}"
            raise MessageError(problem, field="client", sender=sender)
        self._agreement.check(join.handshake, sender)
        if self.started and self.declared.get(number, join.declared) != join.declared:
            problem = f"{join.declared}, but it began with {self.declared[number]}"
            raise MessageError(problem, field="declared", sender=sender)
        self._turns[number] += 1
        self.joined[number] = join.domain
        self.on_domain(number, join.domain)
        self.declared[number] = join.declared
        self.gone.pop(number, None)
        since = self._gone_since.pop(number, None)
        if since is not None:
            away = time.monotonic() - since
            logger.info("client %d was lost and is back, after %.0f s", number, away)
        if self.started:
            self.come_back(number)
            return {}
        refusals = self._agreement.note(number, join.handshake)
        if self._agreement.is_hopeless:
            refusals = self._agreement.close(self._quorum)
        return self._put_out(refusals)

    def _put_out(self, refusals: dict[int, MessageError]) -> dict[int, MessageError]:
        for number in refusals:
            self.lose(number, "")
        return refusals

    def close(self, seconds: float) -> dict[int, MessageError]:
        """End the wait for clients after so many seconds.

        Returns the refusals of the clients that do not fit the majority.

        Raises
        ------
        GGEURError
            Fewer clients than the quorum are there, or agree. The error names them.
        """
        self._closed = True
        missing = [number for number in self._wanted if number not in self.joined]
        within = f"within {seconds:g} s ({setting('deadline.join')})"
        logger.warning("clients %s have not joined %s", missing, within)
        if len(self.joined) < max(self._quorum, 1):
            raise GGEURError(
                f"joining: {len(self.joined)} of {len(self._wanted)} clients have "
                f"joined {within} and {setting('quorum')} asks for {self._quorum}. "
                f"Missing: clients {missing}"
            )
        return self._put_out(self._agreement.close(max(self._quorum, 1)))

    def begin(self, participants: Iterable[int]) -> None:
        """Start the run with the connected clients; `participants` train in it."""
        self.started, self._participants = True, list(participants)
        self._trains = frozenset(self._participants)
        self._unprepared = set(self._trains - self._prepared)
        self._answered.update(
            self._turns
        )  # by joining: what a client declares is screened
        for number in self._expected.keys() - self.joined.keys():
            self.leave(number, "has not joined again")

    # while it goes on

    def lose(self, number: int, reason: str) -> None:
        """Note that a connection ended, of a client or of one that was not admitted."""
        if not self.started:
            self.joined.pop(number, None)
            self.declared.pop(number, None)
            self._agreement.forget(number)
        elif number in self.joined:
            self.gone[number] = reason
            self._gone_since.setdefault(number, time.monotonic())
            self.leave(number, reason)

    def disconnect(self, number: int) -> None:
        """End a connection. If its number proves nothing, its strikes end with it."""
        self._turns[number] += 1
        if self.proven:
            return
        self.conduct.forgive(number)
        if number not in self._accepted:
            self.declared.pop(number, None)

    def note_answer(self, number: int) -> None:
        """A client has answered on its present connection."""
        self._answered[number] = self._turns[number]

    def accept(self, number: int) -> None:
        """The run uses an answer of this client."""
        if not self.proven:  # nobody else can use a number that is proven
            self._accepted.add(number)

    def is_over(self, number: int) -> bool:
        """Whether the connection of a client's last answer is over.

        Somebody else may use the number now.
        """
        return not self.proven and self._answered[number] != self._turns[number]

    def leave(self, number: int, reason: str, connected: bool = False) -> None:
        """Ask a client for nothing until it comes back.

        A client that is connected but late keeps what round 0 sent.
        """
        self.absent.setdefault(number, reason)
        self._back.discard(number)
        if not connected:
            self._prepared.discard(number)
            self._unprepared.add(number)
            self._lost.add(number)
        self._missed.add(number)

    def come_back(self, number: int) -> None:
        """Note that a client is back. It is prepared anew if it was disconnected."""
        self.absent.pop(number, None)
        self._back.add(number)

    def heard_from(self, number: int) -> None:
        """A late answer shows that the client is there, and free."""
        barred = number in self.conduct.barred
        if self.started and number in self.absent and not barred:
            logger.info("client %d is back", number)
            self.come_back(number)

    def ask(self) -> None:
        """Begin a request: count lost and returned clients from now on."""
        self._lost, self._back = set(), set()

    def miss(self, number: int, reason: str, connected: bool) -> str:
        """Note that a client did not answer, or lost its answer while it came back.

        Returns why the client is barred, if it missed too many deadlines; else "".
        """
        is_back = number in self._back
        self.leave(number, reason, connected)
        put_out = self.conduct.miss(number, reason) if connected else ""
        if put_out:
            self.absent[number] = put_out
        elif is_back:
            self.come_back(number)
        return put_out

    def note_prepared(self, number: int) -> None:
        """A client has what round 0 sends, unless it lost its connection since."""
        if number not in self._lost:
            self._prepared.add(number)
            self._unprepared.discard(number)

    @property
    def prepared(self) -> list[int]:
        """The clients that have what round 0 sends, ascending."""
        return sorted(self._prepared)

    @property
    def unprepared(self) -> set[int]:
        """The training clients that lack what round 0 sends."""
        return self._unprepared & self._trains

    def take_returned(self) -> list[int]:
        """The connected training clients that may have missed something. Each is named
        only once."""
        missed = self._unprepared | self._missed
        returned = self.here(sorted(missed & self._trains))
        self._missed -= set(returned)
        return returned

    def here(self, numbers: Iterable[int]) -> list[int]:
        """The clients among `numbers` that are there."""
        return [number for number in numbers if number not in self.absent]

    @property
    def is_short(self) -> bool:
        """Whether too few clients are there to continue."""
        there = self._number - len(self.absent)
        return there < self._quorum or all(k in self.absent for k in self._participants)

    @property
    def _number(self) -> int:
        """How many clients the run has. Clients that join later are counted already."""
        return len(self._expected) or len(self.joined)

    def check_quorum(self, when: str, refusal: MessageError | None = None) -> None:
        """Raise `GGEURError`, which names the missing, if too few clients are there.

        At least one must train: unseen clients alone cannot end a round.
        """
        if not self.is_short:
            return
        number, quorum = self._number, self._quorum
        there = number - len(self.absent)
        missing = "; ".join(f"client {k}: {why}" for k, why in self.absent.items())
        lack = f"and {setting('quorum')} asks for {quorum}; lower it or see to"
        if there >= quorum:
            lack = f"and none of them trains ({setting('unseen_client_num')}); see to"
        raise GGEURError(
            f"{when}: {there} of {number} clients are left {lack} the missing ones. "
            f"Missing: {missing or 'nobody'}"
        ) from refusal
