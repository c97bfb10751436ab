"""Who belongs to a federation: who joined, who is there, who has gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from federatedscope_ggeur.errors import GGEURError, MessageError, setting
from federatedscope_ggeur.federation.course.agreement import Agreement
from federatedscope_ggeur.federation.course.strikes import Conduct
from federatedscope_ggeur.federation.wire.declared import Declared
from federatedscope_ggeur.federation.wire.handshake import Handshake, Join
from federatedscope_ggeur.printable import get_logger

logger = get_logger(__name__)


class Membership:
    """The clients of one federation, before its run and while it goes on.

    Parameters
    ----------
    client_num : int
        Clients 1 to this many may join.
    quorum : int, optional
        How many must be there; default: all.
    settings : mapping
        What every side must have alike of its settings.
    handshake : Handshake, optional
        All that every side must have alike; without it most clients say what the data
        are, see `Agreement`.
    expected : mapping from client number to domain
        The clients of a run that goes on: these may join, and no others.
    given : mapping, optional
        Fields of a handshake that the server knows without data, see `Agreement`.
    proven : bool
        Whether a number shows who somebody is: in one process, and by tokens. Otherwise
        anyone may have taken it, and what one connection did bars no other.

    Attributes
    ----------
    joined : dict from client number to domain
    declared : dict from client number to what it declared of its data
    gone : dict from client number to the reason why its connection is over
    absent : dict from client number to the reason why it is asked for nothing
    conduct : Conduct
        What clients did wrong, and who is put out for it.
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
        self.conduct = Conduct()
        self.proven = proven
        # By number: how many connections have come and gone, and how many had when it
        # last answered.
        self._turns: Counter[int] = Counter()
        self._answered: Counter[int] = Counter()
        self._accepted: set[int] = set()  # who sent something that the run has used
        self.started, self._closed = False, False
        self._participants: list[int] = []
        self._prepared: set[int] = set()
        self._missed: set[int] = set()  # who left since it was last caught up on
        # Since the last request: whose connection was lost, and who is there again.
        self._lost: set[int] = set()
        self._back: set[int] = set()

    @classmethod
    def of(cls, client_domains: Mapping[int, str], quorum: int | None = None):
        """Of clients that are all there from the start, in one process."""
        membership = cls(len(client_domains), quorum, expected=client_domains)
        membership.joined = dict(client_domains)
        return membership

    # before the run

    @property
    def handshake(self) -> Handshake | None:
        """What all sides have alike; None until it is settled."""
        return self._agreement.handshake

    @property
    def client_domains(self) -> dict[int, str]:
        """The domain of each client of the run, by number."""
        return dict(sorted({**self._expected, **self.joined}.items()))

    @property
    def complete(self) -> bool:
        """Whether everyone is there, or nobody is waited for any longer."""
        return self._closed or all(number in self.joined for number in self._wanted)

    @property
    def connected(self) -> list[int]:
        """The clients that are connected, late ones included."""
        return [number for number in sorted(self.joined) if number not in self.gone]

    def admit(self, join: Join) -> dict[int, MessageError]:
        """Take a client in; the refusals of those that joined before it and do not fit
        what most clients say.

        Raises
        ------
        MessageError
            It does not fit the others, or the run began without it; the field says
            where.
        """
        number, sender = join.client, f"client {join.client}"
        known = self.client_domains if self.started else self._expected
        if number in self.conduct.barred:
            problem = f"takes no further part: {self.conduct.barred[number]}"
            raise MessageError(problem, field="client", sender=sender)
        if known and number not in known:
            problem = "the run began without it; it can take part in the next run"
            raise MessageError(problem, field="client", sender=sender)
        if known and known[number] != join.domain:
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
        self.declared[number] = join.declared
        self.gone.pop(number, None)
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
        """Nobody is waited for any longer, after so many seconds; the refusals of those
        that do not fit what most clients say.

        Raises
        ------
        GGEURError
            Fewer clients than the quorum are there, or agree; names them.
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
        """The run starts with those that are there; `participants` train in it."""
        self.started, self._participants = True, list(participants)
        self._answered.update(self._turns)  # by joining: what they declare is screened
        for number in self._expected.keys() - self.joined.keys():
            self.leave(number, "has not joined again")

    # while it goes on

    def lose(self, number: int, reason: str) -> None:
        """A connection is gone: a client's, or that of one which was not admitted."""
        if not self.started:
            self.joined.pop(number, None)
            self.declared.pop(number, None)
            self._agreement.forget(number)
        elif number in self.joined:
            self.gone[number] = reason
            self.leave(number, reason)

    def disconnect(self, number: int) -> None:
        """A connection is over: where its number proves nothing, who joins under it
        next begins with a clean sheet."""
        self._turns[number] += 1
        if self.proven:
            return
        self.conduct.forgive(number)
        if number not in self._accepted:
            self.declared.pop(number, None)

    def note_answer(self, number: int) -> None:
        """A client has answered, on the connection that it has now."""
        self._answered[number] = self._turns[number]

    def accept(self, number: int) -> None:
        """What a client answered is used."""
        self._accepted.add(number)

    def is_over(self, number: int) -> bool:
        """Whether the connection that a client answered on is over, and whoever has
        the number now may be another one."""
        return not self.proven and self._answered[number] != self._turns[number]

    def leave(self, number: int, reason: str, connected: bool = False) -> None:
        """A client is asked for nothing until it comes back.

        One that is still connected, and only late, keeps what round 0 sent.
        """
        self.absent.setdefault(number, reason)
        self._back.discard(number)
        if not connected:
            self._prepared.discard(number)
            self._lost.add(number)
        self._missed.add(number)

    def come_back(self, number: int) -> None:
        """A client is there again; it is prepared anew if its connection was lost."""
        self.absent.pop(number, None)
        self._back.add(number)

    def heard_from(self, number: int) -> None:
        """A late answer to what was asked: the client is there after all, and free."""
        barred = number in self.conduct.barred
        if self.started and number in self.absent and not barred:
            logger.info("client %d is back", number)
            self.come_back(number)

    def ask(self) -> None:
        """A request goes out: who is lost or back is counted from now."""
        self._lost, self._back = set(), set()

    def miss(self, number: int, reason: str, connected: bool) -> str:
        """A client did not answer, or its answer was lost while it came back; why it
        is put out, if one deadline too many has passed for it, or ""."""
        is_back = number in self._back
        self.leave(number, reason, connected)
        put_out = self.conduct.miss(number, reason) if connected else ""
        if put_out:
            self.absent[number] = put_out
        elif is_back:
            self.come_back(number)
        return put_out

    def note_prepared(self, number: int) -> None:
        """A client has what round 0 sends, unless its connection was lost since."""
        if number not in self._lost:
            self._prepared.add(number)

    @property
    def prepared(self) -> list[int]:
        """The clients that have what round 0 sends, ascending."""
        return sorted(self._prepared)

    @property
    def unprepared(self) -> set[int]:
        """The clients that train and do not have it."""
        return set(self._participants) - self._prepared

    def take_returned(self) -> list[int]:
        """The clients that train, are there, and may have missed something; each is
        named once."""
        missed = self.unprepared | self._missed
        returned = self.here(k for k in self._participants if k in missed)
        self._missed -= set(returned)
        return returned

    def here(self, numbers: Iterable[int]) -> list[int]:
        """Those of `numbers` that are there."""
        return [number for number in numbers if number not in self.absent]

    @property
    def is_short(self) -> bool:
        """Whether too few are there for the run to go on."""
        there = len(self.client_domains) - len(self.absent)
        return there < self._quorum or not self.here(self._participants)

    def check_quorum(self, when: str, refusal: MessageError | None = None) -> None:
        """Raise `GGEURError`, naming who is missing, if too few clients are there.

        One that trains must be among them: unseen clients alone end no round.
        """
        number, quorum = len(self.client_domains), self._quorum
        there = number - len(self.absent)
        if not self.is_short:
            return
        missing = "; ".join(f"client {k}: {why}" for k, why in self.absent.items())
        lack = f"and {setting('quorum')} asks for {quorum}; lower it or see to"
        if there >= quorum:
            lack = f"and none of them trains ({setting('unseen_client_num')}); see to"
        raise GGEURError(
            f"{when}: {there} of {number} clients are left {lack} the missing ones. "
            f"Missing: {missing or 'nobody'}"
        ) from refusal
