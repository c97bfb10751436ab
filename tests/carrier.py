"""A carrier of a coordinator's requests whose clients can fail in every way."""

from dataclasses import replace

from by_bytes import Federation, held, make_client_data

from federatedscope_ggeur.federation import Client, MemoryBudget
from federatedscope_ggeur.federation.course.coordinator import Coordinator, Plan
from federatedscope_ggeur.federation.exchanges import Absence
from federatedscope_ggeur.federation.exchanges.base import carry
from federatedscope_ggeur.federation.exchanges.training.messages import ClientUpdate

SIZES = (20, 30, 25, 15)

# What may become of an answer; the client has done its work in any case.


def lost(reply, carrier):
    return Absence("connection lost")


def late(reply, carrier):
    return Absence("no answer within 5 s", connected=True)


def garbage(reply, carrier):
    return (b"garbage",)


def nothing(reply, carrier):
    return ()


def twice(reply, carrier):
    return (*reply, *reply)


def _changed(reply, carrier, **changes):
    update = ClientUpdate.from_bytes(reply[0], carrier.server.schema, "a client")
    return (replace(update, **changes).to_bytes(),)


def of_another_round(reply, carrier):
    return _changed(reply, carrier, round_number=7)


class Carrier:
    """Clients and coordinator of a `Federation` of by_bytes, joined by this carrier.

    Attributes
    ----------
    requests : list of Request
        All so far.
    membership : Membership
        Of the coordinator.
    answers : list of (kind, round, client, reply)
        All that arrived; here and below a kind is given by its name.
    dismissed : list of (client, reason)
    faults : dict from (kind, round, client) to one of the functions above
    meanwhile : dict from (kind, round) to a function called while answers are awaited
    """

    def __init__(self, federation, quorum=None, window=2, **plan):
        self.federation, self.server = federation, federation.server
        self.requests, self.answers, self.dismissed = [], [], []
        self.faults, self.meanwhile = {}, {}
        quorum = len(self.server.client_domains) if quorum is None else quorum
        self.coordinator = Coordinator(
            self.server,
            Plan(window, quorum, plan.pop("server_evaluates", False)),
            {"test": {}},
            dismiss=lambda number, reason: self.dismissed.append((number, reason)),
        )
        self.membership = self.coordinator.membership
        federation.lead(self.coordinator)
        self.handlers = federation.handlers

    def restart(self, k, rows=None):
        """Client `k` as a new process has it, with the first `rows` of its data."""
        old = self.federation.clients[k]
        own = held(k, old.domain, old.features[:rows], old.labels[:rows])
        self.federation.clients[k] = Client(own, old.settings, MemoryBudget(1e9))
        self.handlers[k] = self.federation.new_handler(k)

    @property
    def training(self):
        return self.federation.training

    def round0(self):
        return self.carry(self.coordinator.round0())

    def rounds(self, *numbers):
        """The records of these rounds."""
        return [self.carry(self.coordinator.round(number)) for number in numbers]

    def run(self, rounds):
        """Round 0 and as many rounds."""
        return self.round0(), self.rounds(*range(1, rounds + 1))

    def carry(self, requests):
        return carry(requests, self._replies)

    def asked(self, *kinds, start=0):
        """(kind, clients) of the requests since number `start`."""
        return [
            (request.kind.name, list(request.parts))
            for request in self.requests[start:]
            if not kinds or request.kind.name in kinds
        ]

    def bytes_down(self, *kinds):
        parts = [r.parts for r in self.requests if r.kind.name in kinds]
        return sum(len(part) for sent in parts for ps in sent.values() for part in ps)

    def bytes_up(self, *kinds):
        replies = [reply for kind, _, _, reply in self.answers if kind in kinds]
        return sum(len(part) for reply in replies for part in reply)

    def _replies(self, request):
        kind, number = request.kind.name, request.round_number
        self.requests.append(request)
        replies = self.federation.replies(request)
        for k, reply in replies.items():
            if fault := self.faults.get((kind, number, k)):
                replies[k] = fault(reply, self)
            if not isinstance(replies[k], Absence):
                self.answers.append((kind, number, k, replies[k]))
        if hook := self.meanwhile.get((kind, number)):
            hook()
        return replies


def carrier(method=None, quorum=None, sizes=SIZES, window=2, plan=None, **options):
    """A carrier of a new federation with both steps, unless `options` say otherwise."""
    options.setdefault("steps", (1, 2))
    federation = Federation(make_client_data(sizes), method, **options)
    return Carrier(federation, quorum, window, **(plan or {}))


def after_round_0(*given, **options):
    """As `carrier`, when round 0 is over."""
    carried = carrier(*given, **options)
    carried.round0()
    return carried
