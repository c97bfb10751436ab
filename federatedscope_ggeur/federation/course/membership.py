"""The clients of a federation: who joined, who is connected, who has left.

Finds the handshake on which all sides of a federation agree.

Counts the faults of clients and bars those with too many.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from federatedscope_ggeur.errors import GGEURError, MessageError, of_client, setting
from federatedscope_ggeur.printable import get_logger

from ..wire.handshake import Handshake, Join
from ..wire.schema import Declared


class Agreement:
    """Finds the valid handshake, and the clients that sent a different one.

    If the server holds data, its own handshake is valid. If not, the clients decide by
    majority. A handshake is valid as soon as more than half of all clients have sent
    it. If the wait for clients ends before that, the handshake of the largest group is
    valid. So the first client does not decide alone.

    Parameters
    ----------
    clients : int
        How many clients may join.
    settings : mapping
        The server's own settings.
    handshake : Handshake, optional
        The server's own handshake, if the server holds data.
    given : mapping, optional
        Fields of a `Handshake` that the server's settings fix: dim, class_names,
        encoder.

    Attributes
    ----------
    clients : int
        It may change before the run.
    handshake : Handshake or None
        The valid handshake; None until it is settled.
    """

    def __init__(
        self,
        clients: int,
        settings: Mapping[str, str],
        handshake: Handshake | None = None,
        given: Mapping[str, Any] | None = None,
    ):
        self.clients, self._settings = clients, settings
        self._given = dict(given or {})
        self._is_servers, self.handshake = handshake is not None, handshake
        self._said: dict[int, Handshake] = {}
        self._closed = False

    def check(self, theirs: Handshake, sender: str) -> None:
        """Raise `MessageError` if `theirs` differs from the valid handshake."""
        mine = self.handshake
        by = "most clients" if mine and not self._is_servers else "the server"
        if mine is None:
            mine = replace(theirs, settings=self._settings, **self._given)
        difference = mine.difference(theirs)
        if difference:
            raise MessageError(
                f"{difference} (at {by}); this must be the same on all sides",
                field="handshake",
                sender=sender,
            )

    def note(self, number: int, theirs: Handshake) -> dict[int, MessageError]:
        """Note that a client has joined with the handshake `theirs`.

        Once the valid handshake is settled, this returns the refusals of clients whose
        handshake differs.
        """
        if self._is_servers:
            return {}
        self._said[number] = theirs
        return self._settle()

    def expect(self, clients: int) -> dict[int, MessageError]:
        """Expect another number of clients before the run; refusals as of `note`."""
        self.clients = clients
        return self._settle()

    def _settle(self) -> dict[int, MessageError]:
        if self.handshake is None:
            self.handshake = self._majority()
        return self._misfits()

    def _majority(self) -> Handshake | None:
        """The handshake of more than half of the expected clients, if there is one."""
        first = [*self._sides(), []][0]
        return self._said[first[0]] if 2 * len(first) > self.clients else None

    def forget(self, number: int) -> None:
        """Forget a client that left before the run. The majority may change by this."""
        if self._said.pop(number, None) is not None and not self._closed:
            self.handshake = self._majority()

    def close(self, quorum: int) -> dict[int, MessageError]:
        """Settle the handshake when the wait is over; `quorum` clients must agree.

        Returns the refusals of the clients whose handshake differs.

        Raises
        ------
        GGEURError
            Fewer than `quorum` clients agree, or two groups are equally large.
        """
        if self.handshake is None:
            sides = self._sides()
            first = sides[0] if sides else []
            is_tied = len(sides) > 1 and len(sides[1]) == len(first)
            if len(first) < quorum or is_tied:
                raise GGEURError(f"joining: {self._disagreement(quorum)}")
            self.handshake = self._said[first[0]]
        self._closed = True
        return self._misfits()

    @property
    def is_hopeless(self) -> bool:
        """Whether all clients have joined without any majority."""
        return self.handshake is None and 0 < self.clients <= len(self._said)

    def _sides(self) -> list[list[int]]:
        """The groups of clients with equal handshakes, the largest first.

        Of equally large groups, the one with the lowest client number comes first.
        """
        sides: dict[str, list[int]] = {}
        for k in sorted(self._said):
            sides.setdefault(repr(self._said[k].write()), []).append(k)
        return sorted(sides.values(), key=lambda side: (-len(side), side[0]))

    def _misfits(self) -> dict[int, MessageError]:
        misfits: dict[int, MessageError] = {}
        for k, theirs in self._said.items():
            try:
                if self.handshake is not None:
                    self.check(theirs, f"client {k}")
            except MessageError as error:
                misfits[k] = error
        return misfits

    def _disagreement(self, quorum: int) -> str:
        first, *others = self._sides()
        said = [f"clients {first} agree"]
        for side in others[:3]:
            difference = self._said[first[0]].difference(self._said[side[0]])
            said.append(f"clients {side}: {difference}")
        return (
            f"the clients describe their data differently, and {setting('quorum')} "
            f"needs {quorum} clients that agree; correct the data, or lower "
            f"{setting('quorum')}: {'; '.join(said)}"
        )


#: A client is barred after this number of refused or unasked messages.
STRIKES = 3
#: A client is barred after this number of missed deadlines in a run.
DEADLINES = 2


class Conduct:
    """Counts the faults of clients in a run, by client number.

    A client that joins again keeps its faults, unless `forgive` is called.

    Attributes
    ----------
    barred : dict from client number to the reason why the client is barred
    """

    def __init__(self) -> None:
        self._strikes: Counter[int] = Counter()
        self._missed: Counter[int] = Counter()
        self.barred: dict[int, str] = {}

    def strike(self, number: int, what: str) -> str:
        """Count an invalid message of a client. Returns why it is barred, or ""."""
        self._strikes[number] += 1
        if self._strikes[number] < STRIKES:
            return ""
        return self.bar(
            number, f"barred after {STRIKES} invalid messages, the last one: {what}"
        )

    def miss(self, number: int, what: str) -> str:
        """Count a missed deadline of a client. Returns why it is barred, or ""."""
        self._missed[number] += 1
        if self._missed[number] < DEADLINES:
            return ""
        return self.bar(
            number,
            f"barred after {DEADLINES} missed deadlines, the last one: {what}; raise "
            f"{setting('deadline')} if the client needs longer",
        )

    def forgive(self, number: int) -> None:
        """Forget a client's faults: somebody else may use the number next."""
        del self._strikes[number], self._missed[number]
        self.barred.pop(number, None)

    def bar(self, number: int, reason: str) -> str:
        """Bar a client at once. Returns the reason."""
        return self.barred.setdefault(number, reason)


logger = get_logger(__name__)


class Membership:
    """The clients of one federation, before its run and during it.

    Parameters
    ----------
    client_num : int
        Clients 1 to this number may join.
    quorum : int, optional
        How many clients must be present; by default all.
    settings : mapping
        The settings that must be equal on all sides.
    handshake : Handshake, optional
        Everything that must be equal on all sides. Without a handshake the clients say
        what the data are; see `Agreement`.
    expected : mapping from client number to domain
        The clients of a restored run. No others may join.
    given : mapping, optional
        Fields of a handshake that the server knows without data; see `Agreement`.
    proven : bool
        Whether a client number proves an identity. It does within one process and with
        tokens. Otherwise anybody may use a number, so faults of one connection do not
        bar the next one.

    Attributes
    ----------
    joined : dict from client number to domain
    declared : dict from client number to `Declared`
    gone : dict from client number to the reason why its connection ended
    absent : dict from client number to the reason why the client gets no requests
    on_domain : callable (client number, domain)
        Called with the domain of each client that joins.
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
        self._needs_all = quorum is None
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
        # By client number: how many connections have begun or ended, now and when the
        # client last answered.
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
        """The membership of clients of one process, connected from the start."""
        membership = cls(len(client_domains), quorum, expected=client_domains)
        membership.joined = dict(client_domains)
        return membership

    # before the run

    @property
    def handshake(self) -> Handshake | None:
        """The handshake of all sides; None until it is settled."""
        return self._agreement.handshake

    @property
    def client_domains(self) -> dict[int, str]:
        """The domain of each client of the run, by number."""
        return dict(sorted({**self._expected, **self.joined}.items()))

    @property
    def awaited(self) -> int:
        """How many clients may join."""
        return len(self._wanted)

    @property
    def missing(self) -> list[int]:
        """The clients that may join and are not here, ascending."""
        return [number for number in self._wanted if number not in self.joined]

    @property
    def complete(self) -> bool:
        """Whether the wait for clients is over."""
        return self._closed or not self.missing

    @property
    def connected(self) -> list[int]:
        """The connected clients, also those whose answer is late."""
        return [number for number in sorted(self.joined) if number not in self.gone]

    def admit(self, join: Join) -> dict[int, MessageError]:
        """Let a client join; keep the reason of a refusal for `check_all_left`.

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
        return refusals

    def put_out(self, number: int) -> dict[int, MessageError]:
        """Wait no longer for a client that may not join, before the run.

        Returns the refusals of clients that do not fit the majority of the others.

        Raises
        ------
        GGEURError
            All others have joined, and they are fewer than the quorum, or fewer agree.
        """
        if self.started or number not in self._wanted:
            return {}
        self._wanted.remove(number)
        if self._needs_all:
            self._quorum = len(self._wanted)
        refusals = self._put_out(self._agreement.expect(len(self._wanted)))
        if self.complete and 0 < len(self.joined) < self._quorum:
            raise GGEURError(
                f"joining: clients {sorted(self.joined)} have joined and no others "
                f"may, but {setting('quorum')} needs {self._quorum}; lower it, or "
                "begin a run with more clients"
            )
        return refusals

    def check_all_left(self) -> None:
        """Raise `GGEURError` if all clients came before the run and none could stay.

        Nobody is left to wait for then. The error holds the clients' own errors, or
        says that all clients were put out.
        """
        if not self._wanted:
            raise GGEURError("joining: all clients were put out; nobody may join")
        if self.started or self.joined or not set(self._wanted) <= self._errors.keys():
            return
        said = "; ".join(of_client(k, self._errors[k]) for k in self._wanted)
        raise GGEURError(f"joining: all clients have left with an error: {said}")

    def standing(self) -> dict[str, str]:
        """The state of each client as a word or two, by client number as text."""
        states = {}
        for number in self._wanted:
            is_here = number in self.joined and number not in self.gone
            why = self.gone.get(number) or self._errors.get(number)
            how = f"lost: {why}" if why else "missing"
            states[str(number)] = "here" if is_here else how
        return states

    def _admit(self, join: Join) -> dict[int, MessageError]:
        number, sender = join.client, f"client {join.client}"
        known = self.client_domains if self.started else self._expected
        # Anybody may use this number, and the run has used no answer of it.
        is_open = not self.proven and number not in self._accepted | set(self._expected)
        if number in self.conduct.barred:
            problem = (
                f"the server has barred this client: {self.conduct.barred[number]}"
            )
            raise MessageError(problem, field="client", sender=sender)
        if known and number not in known:
            problem = "the run began without this client; it can join the next run"
            raise MessageError(problem, field="client", sender=sender)
        if known and known[number] != join.domain and not is_open:
            problem = (
                f"{join.domain!r}, but the client joined with {known[number]!r} before"
            )
            raise MessageError(problem, field="domain", sender=sender)
        if number not in self._wanted and not self.started:
            problem = f"{number}, but {setting('client_num')} is {len(self._wanted)}"
            raise MessageError(problem, field="client", sender=sender)
        self._agreement.check(join.handshake, sender)
        if self.started and self.declared.get(number, join.declared) != join.declared:
            problem = (
                f"{join.declared}, but the client declared {self.declared[number]} "
                "at first"
            )
            raise MessageError(problem, field="declared", sender=sender)
        self._turns[number] += 1
        self._errors.pop(number, None)
        self.joined[number] = join.domain
        self.on_domain(number, join.domain)
        self.declared[number] = join.declared
        self.gone.pop(number, None)
        since = self._gone_since.pop(number, None)
        if since is not None:
            away = time.monotonic() - since
            logger.info(
                "client %d has come back after %.0f s without a connection",
                number,
                away,
            )
        if self.started:
            self.come_back(number)
            return {}
        return self._put_out(self._agreement.note(number, join.handshake))

    def _put_out(self, refusals: dict[int, MessageError]) -> dict[int, MessageError]:
        if self._agreement.is_hopeless:
            refusals = self._agreement.close(self._quorum)
        for number, error in refusals.items():
            self.lose(number, "")
            self._errors[number] = str(error)
        return refusals

    def close(self, seconds: float) -> dict[int, MessageError]:
        """End the wait for clients, which took `seconds`.

        Returns the refusals of the clients that do not fit the majority.

        Raises
        ------
        GGEURError
            Fewer clients than the quorum have joined, or fewer agree. The error names
            the missing clients.
        """
        self._closed, missing = True, self.missing
        within = f"within {seconds:g} s ({setting('deadline.join')})"
        logger.warning("clients %s did not join %s", missing, within)
        if len(self.joined) < max(self._quorum, 1):
            raise GGEURError(
                f"joining: {len(self.joined)} of {len(self._wanted)} clients have "
                f"joined {within}, but {setting('quorum')} needs {self._quorum}. "
                f"Start the missing clients {missing}, or change one of the two "
                "settings"
            )
        return self._put_out(self._agreement.close(max(self._quorum, 1)))

    def begin(self, participants: Iterable[int]) -> None:
        """Start the run with the connected clients; `participants` train."""
        self.started, self._participants = True, list(participants)
        self._trains = frozenset(self._participants)
        self._unprepared = set(self._trains - self._prepared)
        self._answered.update(
            self._turns
        )  # by joining: what a client declares is screened
        for number in self._expected.keys() - self.joined.keys():
            self.leave(number, "has not joined again")

    # during the run

    def lose(self, number: int, reason: str) -> None:
        """Note that the connection of a client, or of a refused client, has ended."""
        if not self.started:
            self.joined.pop(number, None)
            self.declared.pop(number, None)
            self._agreement.forget(number)
        elif number in self.joined:
            self.gone[number] = reason
            self._gone_since.setdefault(number, time.monotonic())
            self.leave(number, reason)

    def disconnect(self, number: int) -> None:
        """Note that the server ends a client's connection.

        If client numbers do not prove an identity, the client's faults are forgotten.
        """
        self._turns[number] += 1
        if self.proven:
            return
        self.conduct.forgive(number)
        if number not in self._accepted:
            self.declared.pop(number, None)

    def note_answer(self, number: int) -> None:
        """Note that a client has answered on its present connection."""
        self._answered[number] = self._turns[number]

    def accept(self, number: int) -> None:
        """Note that the run uses an answer of this client."""
        if not self.proven:  # nobody else can use a number that is proven
            self._accepted.add(number)

    def is_over(self, number: int) -> bool:
        """Whether a client's last answer came on a connection that has ended since.

        Somebody else may use the client number now. This is always False if client
        numbers prove identities.
        """
        return not self.proven and self._answered[number] != self._turns[number]

    def leave(self, number: int, reason: str, connected: bool = False) -> None:
        """Send a client no requests until it comes back.

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
        """Note that a client is back; after a lost connection it is prepared anew."""
        self.absent.pop(number, None)
        self._back.add(number)

    def heard_from(self, number: int) -> None:
        """Note a late answer: the client is there and can take requests again."""
        barred = number in self.conduct.barred
        if self.started and number in self.absent and not barred:
            logger.info("client %d is back", number)
            self.come_back(number)

    def ask(self) -> None:
        """Begin a request: note lost and returned clients from now on."""
        self._lost, self._back = set(), set()

    def miss(self, number: int, reason: str, connected: bool) -> str:
        """Note that a client's answer did not come.

        Either the client did not answer, or it lost its connection and came back.
        Returns why the client is barred if it missed too many deadlines, else "".
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
        """Note that a client has received what round 0 sends.

        Nothing is noted if the client has lost its connection during the request.
        """
        if number not in self._lost:
            self._prepared.add(number)
            self._unprepared.discard(number)

    @property
    def prepared(self) -> list[int]:
        """The clients that have received what round 0 sends, ascending."""
        return sorted(self._prepared)

    @property
    def unprepared(self) -> set[int]:
        """The training clients that have not received what round 0 sends."""
        return self._unprepared & self._trains

    def take_returned(self) -> list[int]:
        """The connected training clients that may have missed something.

        A client is returned once for each time that it was away.
        """
        missed = self._unprepared | self._missed
        returned = self.here(sorted(missed & self._trains))
        self._missed -= set(returned)
        return returned

    def here(self, numbers: Iterable[int]) -> list[int]:
        """The clients among `numbers` that are present."""
        return [number for number in numbers if number not in self.absent]

    @property
    def is_short(self) -> bool:
        """Whether too few clients are present to continue."""
        there = self._number - len(self.absent)
        return there < self._quorum or all(k in self.absent for k in self._participants)

    @property
    def _number(self) -> int:
        """How many clients the run has, those that will join later included."""
        return len(self._expected) or len(self.joined)

    def check_quorum(self, when: str, refusal: MessageError | None) -> None:
        """Raise `GGEURError`, which names the missing clients, if too few are present.

        At least one present client must train, since unseen clients alone cannot end a
        round.
        """
        if not self.is_short:
            return
        number, quorum = self._number, self._quorum
        there = number - len(self.absent)
        missing = "; ".join(of_client(k, why) for k, why in self.absent.items())
        lack = f"but {setting('quorum')} needs {quorum}; lower it or bring"
        if there >= quorum:
            lack = f"but none of them trains ({setting('unseen_client_num')}); bring"
        raise GGEURError(
            f"{when}: {there} of {number} clients are left, {lack} the missing "
            f"clients back. Missing: {missing or 'nobody'}"
        ) from refusal
