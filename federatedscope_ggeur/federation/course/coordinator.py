"""The course of a federation, as the server sees it, whatever carries the messages.

`Coordinator` turns the server role into conversations: generators that yield a
`Request` and are sent the replies. An engine carries each request to its clients and
the replies back; what is asked in which order, who is waited for, what counts as an
answer and what is recorded stands here, once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import Score, Server
from federatedscope_ggeur.federation.course.membership import Membership
from federatedscope_ggeur.federation.course.records import (
    Cost,
    Evaluation,
    head_record,
    round_record,
)
from federatedscope_ggeur.federation.course.requests import (
    Absence,
    Conversation,
    Request,
    decode_answer,
)
from federatedscope_ggeur.federation.messages import ScoreReport
from federatedscope_ggeur.federation.sampling import windows
from federatedscope_ggeur.reporting import HeadRecord, Round0, RoundRecord

logger = logging.getLogger(__name__)

_NOTHING_SENT = {"geometry_bytes_down": 0, "prototypes_bytes_down": 0}


@dataclass(frozen=True)
class Plan:
    """How a federation is carried out.

    Attributes
    ----------
    round0_window : int
        Clients asked at a time in round 0.
    quorum : int
        The run ends with an error when fewer clients are there.
    server_evaluates : bool
        The server scores its own test sets; else every client scores its own.
    """

    round0_window: int
    quorum: int
    server_evaluates: bool


class Coordinator(Membership):
    """Leads one federation.

    Parameters
    ----------
    server : Server
    plan : Plan
    tests : mapping from domain to Embeddings
        Test sets of the server: all domains' if it evaluates, else the unseen ones'.
    dismiss : callable (client number, reason)
        Called when a client's message is refused; the engine ends its connection.

    Attributes
    ----------
    scores : dict from domain to Score
        Of the last evaluation.
    reports : dict from client number to ScoreReport
        What clients scored in it on their own test rows, unseen clients included.
    """

    def __init__(
        self,
        server: Server,
        plan: Plan,
        tests: Mapping[str, Embeddings],
        dismiss: Callable[[int, str], None] = lambda number, reason: None,
    ):
        super().__init__(server.client_domains, server.participants, plan.quorum)
        self.server, self.plan = server, plan
        self.scores: dict[str, Score] = {}
        self.reports: dict[int, ScoreReport] = {}
        self.geometry = b""
        self.shared = b""
        self._tests, self._dismiss = tests, dismiss
        self._down = self._up = 0

    # the course

    def round0(self) -> Conversation[Round0]:
        """Statistics up, geometry and prototypes down, readiness up; where there is
        one, the head in closed form, scored."""
        started, server = time.perf_counter(), self.server
        sizes: dict[str, int] = {}
        pairs = 0
        if server.needs_statistics:
            for window in server.windows(self.plan.round0_window):
                pairs += yield from self._collect(window, sizes)
        if server.settings.steps:
            self.geometry = server.geometry().to_bytes()
        chosen, solving = None, 0.0
        if server.settings.closed_form is not None:
            before = time.perf_counter()
            chosen, solving = server.solve(), time.perf_counter() - before
        clients, sent = sorted(server.uploaded), _NOTHING_SENT
        if server.settings.total_rounds:
            sent = yield from self._begin()
            clients = sorted(self._prepared)
        seconds = time.perf_counter() - started - solving
        closed_form = None
        if chosen is not None:
            measured = self._start_measuring(solving)
            evaluation = yield from self._evaluate(0)
            kind = server.settings.closed_form.name
            closed_form = head_record(kind, chosen, evaluation, measured())
        return Round0(
            clients=clients,
            seconds=seconds,
            statistics_bytes_up=sizes,
            uploaded_pairs=pairs,
            withheld_pairs=None if sizes else 0,
            closed_form=closed_form,
            **sent,
        )

    def round(self, number: int) -> Conversation[RoundRecord]:
        """One round of training and, where it is due, of evaluation."""
        measured = self._start_measuring()
        yield from self.welcome_back()
        out = self.absent.keys() | self._unprepared()
        drawn = self.server.sample(number, out)
        updates = yield from self._ask("train", number, self._broadcast(number, drawn))
        if updates:
            self.server.step(number, updates, drawn)
        else:
            logger.warning("round %d: no client trained, the head stays", number)
        evaluation = None
        if self.server.evaluates(number):
            evaluation = yield from self._evaluate(number)
        clients = [update.client for update in updates]
        return round_record(number, clients, evaluation, measured())

    def calibrate(self) -> Conversation[HeadRecord]:
        """After the last round: calibrate the head on the clients' statistics of what
        its last layer takes in, and score it."""
        measured, server = self._start_measuring(), self.server
        # No round has this number, so no late answer can be taken for one to this.
        number = server.settings.total_rounds + 1
        if server.calibration.suffices(server.statistics):
            server.calibration.use(server.statistics)
        else:
            for window in server.windows(self.plan.round0_window):
                asked = self._broadcast(number, self._here(window))
                uploads = yield from self._ask("calibrate", number, asked)
                server.calibration.add(uploads)
        details = server.calibrate()
        evaluation = yield from self._evaluate(number)
        return head_record("ccvr", details, evaluation, measured())

    def welcome_back(self) -> Conversation[None]:
        """Prepare the clients that are there without what round 0 sent.

        Every round begins with it. After a restart it may go before, so that what is
        sent a second time does not count among the bytes of a round.
        """
        here = self._here(self.server.participants)
        numbers = [k for k in here if k not in self._prepared]
        if not numbers or not self.server.settings.total_rounds:
            return
        yield from self._prepare(numbers)
        if self.shared:
            prepared = [k for k in numbers if k in self._prepared]
            self._down += yield from self._share(prepared)

    # round 0

    def _begin(self) -> Conversation[dict[str, int]]:
        """Make everyone ready for training; the bytes of that, by their name."""
        geometry, prototypes, ready_up = yield from self._prepare(
            self._here(self.server.participants)
        )
        # One may be back already, but too late for its window.
        shared = self.server.start(self._unprepared())
        shared_down = 0
        if shared is not None:
            self.shared = shared.to_bytes()
            shared_down = yield from self._share(sorted(self._prepared))
        return {
            "geometry_bytes_down": geometry,
            "prototypes_bytes_down": prototypes,
            "ready_bytes_up": ready_up,
            "shared_bytes_down": shared_down,
        }

    def _collect(self, window: list[int], sizes: dict[str, int]) -> Conversation[int]:
        """One window of statistics; how many (client, class) pairs they hold."""
        asked = dict.fromkeys(self._here(window), ())
        uploads = yield from self._ask("statistics", 0, asked, sizes)
        self.server.add_statistics(uploads)
        return sum(len(upload.statistics.classes) for upload in uploads)

    def _prepare(self, numbers: list[int]) -> Conversation[tuple[int, int, int]]:
        """Prepare clients for training; bytes of geometry, prototypes, readiness."""
        geometry = prototypes = 0
        before = self._up
        for window in windows(numbers, self.plan.round0_window):
            asked = {}
            for k in self._here(window):
                around = self.server.prototypes(k)
                asked[k] = (self.geometry, around.to_bytes() if around else b"")
                geometry += len(self.geometry)
                prototypes += len(asked[k][1])
            for ready in (yield from self._ask("prepare", 0, asked)):
                self.server.add_prepare_reply(ready, again=True)
                if ready.client not in self._lost:
                    self._prepared.add(ready.client)
        return geometry, prototypes, self._up - before

    def _share(self, numbers: list[int]) -> Conversation[int]:
        if not numbers:
            return 0
        asked = dict.fromkeys(numbers, (self.shared,))
        yield Request("share", 0, asked, answered=False)
        return len(self.shared) * len(asked)

    # every round

    def _evaluate(self, number: int) -> Conversation[Evaluation]:
        server = self.server
        scores: dict[str, Score] = {}
        unseen = None
        if not self.plan.server_evaluates:
            asked = self._broadcast(number, self._here(server.client_domains))
            reports = yield from self._ask("score", number, asked)
            self.reports = {report.client: report for report in reports}
            scores = server.aggregate_scores(number, reports, server.participants)
            if server.unseen:
                unseen = server.aggregate_scores(number, reports, server.unseen)
        for name, test in self._tests.items():
            scores[name] = server.score(test.features, test.labels)
        self.scores = scores
        return Evaluation(scores, unseen)

    def _start_measuring(self, spent: float = 0.0) -> Callable[[], Cost]:
        """Count bytes and seconds, beside those `spent`; what comes back says how
        many."""
        started = time.perf_counter() - spent
        self._down = self._up = 0
        return lambda: Cost(time.perf_counter() - started, self._up, self._down)

    def _broadcast(self, number: int, clients: Collection[int]) -> dict:
        data = self.server.broadcast(number).to_bytes()
        return dict.fromkeys(clients, (data,))

    def _ask(
        self,
        kind: str,
        number: int,
        parts: Mapping[int, tuple[bytes, ...]],
        sizes: dict[str, int] | None = None,
    ) -> Conversation[list]:
        """Ask clients; the answers that can be used, decoded, in client order."""
        is_after = number > self.server.settings.total_rounds
        when = f"{'calibration' if is_after else f'round {number}'}, {kind}"
        self.check_quorum(when)
        if not parts:
            return []
        self._lost, self._back = set(), set()
        request = Request(kind, number, parts)
        replies = yield request
        answers = []
        self._down += sum(len(part) for sent in parts.values() for part in sent)
        for k in sorted(parts):
            reply = replies.get(k, Absence("no answer"))
            if isinstance(reply, Absence):
                self._miss(k, reply)
                continue
            self._up += sum(map(len, reply))
            if sizes is not None:
                sizes[str(k)] = sum(map(len, reply))
            try:
                answers.append(decode_answer(self.server, request, k, reply))
            except MessageError as error:
                self._refuse(k, error)
        self.check_quorum(when)
        return answers

    def _miss(self, client: int, absence: Absence) -> None:
        # Its answer was lost, but it came back while the others were waited for.
        is_back = client in self._back
        self.leave(client, absence.reason, absence.connected)
        if is_back:
            self.come_back(client)

    def _refuse(self, client: int, error: MessageError) -> None:
        logger.warning("%s", error)
        self._refusal = error
        self.leave(client, str(error))
        self._dismiss(client, str(error))
