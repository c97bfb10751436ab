"""The course of a federation, as the server sees it, whatever carries the messages.

`Coordinator` turns the server role into generators of requests: they yield a `Request`
and are sent the replies. An engine carries each request to its clients and the replies
back; what is asked in which order, who is waited for, what counts as an answer and what
is recorded stands here, once.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from torch import Tensor

from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.federation.course.choice import choose
from federatedscope_ggeur.federation.course.exchange import Exchange
from federatedscope_ggeur.federation.course.gathering import Gathering
from federatedscope_ggeur.federation.course.membership import Membership
from federatedscope_ggeur.federation.course.plan import Plan
from federatedscope_ggeur.federation.course.requests import (
    CALIBRATE,
    EVALUATE,
    INIT_BROADCAST,
    PREPARE,
    TRAIN,
    Request,
    Requests,
)
from federatedscope_ggeur.federation.divergence import DivergenceWatch, largest
from federatedscope_ggeur.federation.evaluation import Score, average_metrics
from federatedscope_ggeur.federation.messages import (
    Broadcast,
    ScoreReport,
)
from federatedscope_ggeur.federation.sampling import windows
from federatedscope_ggeur.federation.screening import (
    BLIND_TO_SUMS,
    Screen,
    log_largest_share,
)
from federatedscope_ggeur.federation.server import Server
from federatedscope_ggeur.models import trainable_part
from federatedscope_ggeur.reporting import Round0, RoundRecord, Screening, average

logger = logging.getLogger(__name__)

_NOTHING_SENT = {"geometry_bytes_down": 0, "prototypes_bytes_down": 0}


class Coordinator:
    """Leads one federation.

    Parameters
    ----------
    server : Server
    plan : Plan
    rows : mapping from split to mapping from domain to Embeddings
        What the server scores a head on: all domains' rows if it evaluates, else the
        test sets of the unseen ones.
    membership : Membership, optional
        Who is there; default: all clients, from the start.
    dismiss : callable (client number, reason)
        Called when a client's message is refused; the engine ends its connection.

    Attributes
    ----------
    scores : dict from split to dict from domain to Score
        Of the last evaluation.
    reports : dict from client number to ScoreReport
        What clients scored in it on their own rows, unseen clients included.
    geometry, space, init_broadcast : bytes
        What round 0 sends to everyone; empty where there is none.
    divergence : DivergenceWatch
        Whether training has diverged by now.
    screen : Screen
        What was found of clients by now.
    """

    def __init__(
        self,
        server: Server,
        plan: Plan,
        rows: Mapping[str, Mapping[str, Embeddings]],
        membership: Membership | None = None,
        dismiss: Callable[[int, str], None] = lambda number, reason: None,
    ):
        self.server, self.plan = server, plan
        if membership is None:
            membership = Membership.of(server.client_domains, plan.quorum)
        self.membership = membership
        membership.begin(server.participants)
        self.scores: dict[str, dict[str, Score]] = {}
        self.reports: dict[int, ScoreReport] = {}
        self.geometry = b""
        self.space = b""
        self.init_broadcast = b""
        settings = server.settings
        self.divergence = DivergenceWatch(
            server.task.num_classes, server.task.method, settings.rate
        )
        self._rows = rows
        self.screen = Screen(plan.screen)
        self._exchange = Exchange(server, membership, dismiss)
        self._ask = self._exchange.ask
        self._gathering = Gathering(
            server, membership, self._exchange, self.screen, plan.round0_window
        )

    # the course

    def round0(self) -> Requests[Round0]:
        """Statistics and totals up, geometry, prototypes and the space down, readiness
        up; where there is one, the head in closed form, scored."""
        started, server = time.perf_counter(), self.server
        found = self.screen.declared(self.membership.declared)
        self._exchange.put_out(found, "round 0, joining")
        sizes: dict[str, int] = {}
        pairs = yield from self._gathering.statistics(sizes)
        chosen, solving, sizes_of_choice = {}, 0.0, (0, 0)
        form, exchange = server.settings.closed_form, self._exchange
        if form is not None:
            before, exchange.down, exchange.up = time.perf_counter(), 0, 0
            here = self.membership.here(sorted(server.uploaded))
            choice = yield from choose(form, server, here, self._ask)
            report = server.solve(choice.form, choice.start)
            chosen, solving = choice.recorded(report), time.perf_counter() - before
            sizes_of_choice = exchange.down, exchange.up
        totals_up = (yield from self._make_space()) if server.needs_space else 0
        if server.settings.steps:
            self.geometry = server.geometry().to_bytes()
        clients, sent = sorted(server.uploaded), _NOTHING_SENT
        if server.settings.total_rounds:
            sent = yield from self._begin()
            clients = self.membership.prepared
        seconds = time.perf_counter() - started - solving
        closed_form = None
        if form is not None:
            record = self._start_record(0, solving, *sizes_of_choice)
            scored = yield from self._evaluate(0)
            closed_form = record(scored, method=form.name, details=chosen)
        start_loss = closed_form.loss if closed_form is not None else None
        self.divergence.begin(self._trained(server.params), start_loss)
        return Round0(
            clients=clients,
            seconds=seconds,
            statistics_bytes_up=sizes,
            uploaded_pairs=pairs,
            withheld_pairs=None if sizes else 0,
            totals_bytes_up=totals_up,
            space=server.space.report(),
            closed_form=closed_form,
            compression=server.compression.record(server.statistics),
            sums=server.sums.record(),
            **sent,
        )

    def round(self, number: int) -> Requests[RoundRecord]:
        """One round of training and, where it is due, of evaluation."""
        record, members = self._start_record(number), self.membership
        self.screen.round = number
        yield from self.welcome_back()
        out = members.absent.keys() | members.unprepared
        drawn = self.server.sample(number, out)
        asked = self._to_all(drawn, self.server.broadcast(number))
        updates = yield from self._ask(TRAIN, number, asked, welcome=self.welcome_back)
        found = self.screen.updates(updates, self.server.params, self._trained)
        updates = self._but(updates, found, f"round {number}, train")
        clients = [update.client for update in updates]
        weights = {u.client: largest(self._trained(u.params)) for u in updates}
        if updates:
            self.server.step(number, updates)
        else:
            logger.warning("round %d: no client trained, the head stays", number)
        del updates  # a network's take much memory
        scored: dict[str, Any] = dict.fromkeys(("accuracy", "avg", "std", "loss"))
        if self.server.evaluates(number):
            scored = yield from self._evaluate(number)
            self._look_for_divergence(number, weights)
        figures = self.server.task.method.figures(self.server.method_state)
        return record(scored, clients=clients, details=dict(figures) or None)

    def calibrate(self) -> Requests[RoundRecord]:
        """After the last round: calibrate the head on the clients' statistics of what
        its last layer takes in, and score it."""
        server, calibration = self.server, self.server.calibration
        assert calibration is not None, "the settings ask for no calibration"
        # No round has this number, so no late answer can be taken for one to this.
        number = server.settings.total_rounds + 1
        record = self._start_record(number)
        if not calibration.takes(server.statistics):
            for window in windows(server.participants, self.plan.round0_window):
                here = self.membership.here(window)
                asked = self._to_all(here, server.model_broadcast(number))
                uploads = yield from self._ask(CALIBRATE, number, asked)
                calibration.add(uploads)
        server.params, details = calibration.run(server.params, server.space)
        scored = yield from self._evaluate(number)
        return record(scored, method="ccvr", details=details)

    def welcome_back(self) -> Requests[None]:
        """Prepare the clients that are there without what round 0 sent.

        Every round begins with it. After a restart it may go before, so that what is
        sent a second time does not count among the bytes of a round.
        """
        members = self.membership
        here = members.here(self.server.participants)
        numbers = [k for k in here if k in members.unprepared]
        if not numbers or not self.server.settings.total_rounds:
            return
        yield from self._prepare(numbers)
        if self.init_broadcast:
            prepared = [k for k in numbers if k not in members.unprepared]
            self._exchange.down += yield from self._send_init_broadcast(prepared)

    def screening(self) -> Screening:
        """What was found of clients by now, and what nobody could look at."""
        summed = self.server.settings.sums is not None
        return Screening(self.screen.findings, [BLIND_TO_SUMS] if summed else [])

    # round 0

    def _begin(self) -> Requests[dict[str, int]]:
        """Make everyone ready for training; the bytes of that, by their name."""
        members = self.membership
        sent = yield from self._prepare(members.here(self.server.participants))
        replies, settings = self.server.prepare_replies, self.server.settings
        log_largest_share(replies.values(), settings.ignore_weight, settings.max_share)
        # One may be back already, but too late for its window.
        message = self.server.start(members.unprepared)
        down = 0
        if message is not None:
            self.init_broadcast = message.to_bytes()
            down = yield from self._send_init_broadcast(members.prepared)
        return {**sent, "init_broadcast_bytes_down": down}

    def _make_space(self) -> Requests[int]:
        """The space that is trained in; the bytes up that were for it alone."""
        up = yield from self._gathering.totals()
        message = self.server.make_space()
        self.space = b"" if message is None else message.to_bytes()
        return up

    def _prepare(self, numbers: list[int]) -> Requests[Counter[str]]:
        """Prepare clients for training; bytes of what travels, by their name."""
        sent: Counter[str] = Counter(_NOTHING_SENT)
        before = self._exchange.up
        for window in windows(numbers, self.plan.round0_window):
            asked = {}
            for k in self.membership.here(window):
                around = self.server.prototypes(k)
                prototypes = around.to_bytes() if around else b""
                asked[k] = (self.geometry, prototypes, self.space)
                sent["geometry_bytes_down"] += len(self.geometry)
                sent["prototypes_bytes_down"] += len(prototypes)
                sent["space_bytes_down"] += len(self.space)
            for reply in (yield from self._ask(PREPARE, 0, asked)):
                self.server.add_prepare_reply(reply)
                self.membership.note_prepared(reply.client)
        replies = self.server.prepare_replies
        found = self.screen.weights(replies.values())
        for k in found:
            del replies[k]
        self._exchange.put_out(found, "round 0, prepare")
        sent["prepare_bytes_up"] = self._exchange.up - before
        return sent

    def _send_init_broadcast(self, numbers: list[int]) -> Requests[int]:
        if not numbers:
            return 0
        asked = dict.fromkeys(numbers, (self.init_broadcast,))
        yield Request(INIT_BROADCAST, 0, asked)
        return len(self.init_broadcast) * len(asked)

    # what is unlike the others'

    def _but(self, answers: list, found: Mapping[int, str], when: str) -> list:
        """The answers of all but those clients, which are put out."""
        self._exchange.put_out(found, when)
        return [answer for answer in answers if answer.client not in found]

    # every round

    def _evaluate(self, number: int) -> Requests[dict]:
        """Score the head (in round 0 the one in closed form); the fields of a record
        that say how well it did."""
        server, evaluation = self.server, self.plan.evaluation
        self.scores = {split: {} for split in evaluation.splits}
        unseen = None
        if not self.plan.server_evaluates:
            reports = yield from self._ask(EVALUATE, number, self._to_score(number))
            self.reports = {report.client: report for report in reports}
            for split in evaluation.splits:
                self.scores[split] = server.aggregate_scores(
                    reports, split, server.participants
                )
            if server.unseen:
                unseen = server.aggregate_scores(reports, "test", server.unseen)
        for split, domains in self._rows.items():
            for name, rows in domains.items():
                score = server.score(rows.features, rows.labels, number == 0)
                self.scores.setdefault(split, {})[name] = score
        tests = self.scores.get("test", {})
        accuracy = _accuracy(tests)
        avg, std = average(accuracy)
        total = sum(tests.values(), Score())
        return {
            "accuracy": accuracy,
            "avg": avg,
            "std": std,
            "loss": total.mean_loss,
            "unseen_clients": None if unseen is None else _accuracy(unseen),
            "metrics": self._metrics(),
        }

    def _look_for_divergence(self, number: int, weights: Mapping[int, float]) -> None:
        """From the largest weight that each client sent, and the loss on the test rows
        or, where they are not scored, others."""
        totals = {s: sum(d.values(), Score()) for s, d in self.scores.items()}
        split = next(
            (s for s in ("test", "val") if totals.get(s, Score()).total), "train"
        )
        scores = {k: r.scores.get(split, Score()) for k, r in self.reports.items()}
        self.divergence.look(
            number,
            totals.get(split, Score()).mean_loss,
            self._trained(self.server.params),
            weights,
            {k: s.mean_loss for k, s in scores.items() if s.mean_loss is not None},
        )

    def _trained(self, params: Tensor) -> Tensor:
        """Without running statistics, which may be large."""
        return trainable_part(self.server.model, params)

    def _metrics(self) -> dict[str, float]:
        """FederatedScope's metrics of the last evaluation: averages over clients, or
        those of all rows where the server evaluates."""
        each: list[Mapping[str, Score]]
        if self.plan.server_evaluates:
            each = [{s: sum(d.values(), Score()) for s, d in self.scores.items()}]
        else:
            unseen = set(self.server.unseen)
            each = [r.scores for k, r in self.reports.items() if k not in unseen]
        return average_metrics(each, self.plan.evaluation.average)

    def _start_record(
        self, number: int, spent: float = 0.0, down: int = 0, up: int = 0
    ) -> Callable[..., RoundRecord]:
        """Count seconds and bytes from now, beside those `spent`, `down` and `up`; what
        comes back makes the record of them and of the scores."""
        started = time.perf_counter() - spent
        self._exchange.down, self._exchange.up = down, up

        def record(scored: dict[str, Any], clients=(), **made_by: Any) -> RoundRecord:
            return RoundRecord(
                number,
                list(clients),
                **scored,
                seconds=time.perf_counter() - started,
                bytes_up=self._exchange.up,
                bytes_down=self._exchange.down,
                **made_by,
            )

        return record

    def _to_score(self, number: int) -> dict[int, tuple[bytes]]:
        """The model on raw embeddings or, where clients make models of their own of it,
        what they train from, to those that know the space."""
        server, members = self.server, self.membership
        here = members.here(server.client_domains)
        if not server.task.method.personal or server.task.space.kind == "raw":
            return self._to_all(here, server.head_broadcast(number, number == 0))
        unseen = [k for k in here if k in server.unseen]
        prepared = members.here(members.prepared)
        return {
            **self._to_all(unseen, server.head_broadcast(number)),
            **self._to_all(prepared, server.broadcast(number)),
        }

    def _to_all(
        self, clients: Collection[int], broadcast: Broadcast
    ) -> dict[int, tuple[bytes]]:
        return dict.fromkeys(clients, (broadcast.to_bytes(),))


def _accuracy(scores: Mapping[str, Score]) -> dict[str, float | None]:
    return {name: score.accuracy for name, score in scores.items()}
