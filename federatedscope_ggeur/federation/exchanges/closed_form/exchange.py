"""The one-shot (closed-form) head: chosen with clients' help, solved, and scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.base import (
    ClientSide,
    Exchange,
    Request,
    RequestKind,
    Requests,
    refusal,
    register_exchange,
    require_known,
)
from federatedscope_ggeur.federation.exchanges.closed_form import keys
from federatedscope_ggeur.federation.exchanges.closed_form.choice import (
    Choice,
    choose_by_hits,
    choose_start,
    choose_untuned,
)
from federatedscope_ggeur.federation.exchanges.closed_form.leave_one_out import (
    HitCounts,
    LeaveOneOut,
)
from federatedscope_ggeur.federation.exchanges.closed_form.solver import HeadSolver
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.wire import limits
from federatedscope_ggeur.federation.wire.declared import Declared
from federatedscope_ggeur.models import ClosedForm
from federatedscope_ggeur.models.closed_forms import (
    LARGER_PART,
    Rows,
    confounded_share,
    left_out_hits,
)
from federatedscope_ggeur.reporting import RoundRecord


@dataclass(frozen=True)
class ClosedFormSettings:
    """Which head is worked out.

    Attributes
    ----------
    form : ClosedForm
    """

    form: ClosedForm


class ClosedFormClient(ClientSide):
    """Counts which of the client's rows each candidate classifies rightly."""

    _asked: LeaveOneOut | None = None

    def hit_counts(self, message: LeaveOneOut) -> HitCounts:
        """Of its rows, those for validation included, how many are hits.

        A row is left out of the statistics that it is in. Rows of withheld classes and
        validation rows are in none.

        Raises
        ------
        MessageError
            For other components than the first time: sets of the server's choosing,
            one after the other, could tell rows apart.
        """
        if self._asked is not None and not self._asked.equals(message):
            raise _refused("kind", "hit counts a second time, for other components")
        self._asked = message
        client, names = self.client, message.components.domain_names
        if client.domain not in names:
            raise _refused("domains", f"{client.domain!r} is not among {names}")
        where = client.number, names.index(client.domain)
        inside = (client.counts >= client.settings.min_samples)[client.labels]
        scores = message.scores(client.settings.of(ClosedFormSettings).form)
        own = Rows(client.features, client.labels, *where, inside)
        hits, total = left_out_hits(scores, own), len(own)
        validation = self.rows.get("val")
        if validation is not None and len(validation):
            x, y = validation.features, validation.labels
            nowhere = torch.zeros(len(y), dtype=torch.bool)
            hits += left_out_hits(scores, Rows(x, y, *where, nowhere))
            total += len(y)
        return HitCounts(client.number, total, hits)


def _refused(field: str, problem: str) -> MessageError:
    return MessageError(problem, field=field, sender="the server")


def _validate(exchange: ClosedFormExchange, request: Request, counts: HitCounts):
    """One count for each candidate, of all the rows that a client has sent statistics
    of and of those that it withheld."""
    uploaded = exchange.server.uploaded_rows
    require_known(counts.client, uploaded)
    candidates = len(exchange.solver.candidates)
    if len(counts.hits) != candidates:
        problem = f"{len(counts.hits)} counts, but there are {candidates} candidates"
        raise refusal(counts.client, "hits", problem)
    if counts.rows < uploaded[counts.client]:
        raise refusal(
            counts.client,
            "rows",
            f"{counts.rows} rows scored, but it sent statistics of "
            f"{uploaded[counts.client]}",
        )


def _bound(declared: Declared, exchange: Any, counts: HitCounts) -> None:
    """No more rows than it trains and validates on."""
    rows = declared.train + declared.val
    declared.check_rows(counts.client, "rows", counts.rows, rows)


LEAVE_ONE_OUT = RequestKind(
    name="hit_counts",
    message="components",
    deadline="round0",
    parts=(LeaveOneOut,),
    respond=lambda side, message: side.hit_counts(message),
    answer_message="hit_counts",
    answer=HitCounts,
    validate=_validate,
    bound=_bound,
    largest=lambda e: limits.PLAIN + 8 * len(e.solver.candidates),
    shared_parts=True,
)


@register_exchange("closed_form")
class ClosedFormExchange(Exchange):
    """Chooses and solves the head, and has it scored once clients are prepared.

    Attributes
    ----------
    solver : HeadSolver
    """

    KINDS = (LEAVE_ONE_OUT,)
    CLIENT = ClosedFormClient
    KEYS = keys.KEYS
    objections = staticmethod(keys.objections)
    REVEALS = "how many rows each candidate head classifies rightly"

    def __init__(self, course):
        super().__init__(course)
        server = self.server
        self._form = server.settings.of(ClosedFormSettings).form
        self._demands = server.settings.demands
        self.solver = HeadSolver(
            self._form,
            compares=self._demands.keeps_components,
            domains=server.client_domains.values(),
            seed=server.task.seed,
        )
        self._details: dict[str, Any] = {}
        self._record: RoundRecord | None = None

    @classmethod
    def is_due(cls, demands: Demands) -> bool:
        return demands.closed_form

    @classmethod
    def answered(cls, demands: Demands) -> tuple[RequestKind, ...]:
        return cls.KINDS if demands.leaves_one_out else ()

    def on_statistics(self, upload: StatisticsUpload) -> None:
        self.solver.add(upload)

    def begin(self) -> Requests[None]:
        """Choose and solve the head, and what training starts from.

        Raises
        ------
        StatisticsError
            The statistics do not allow that head; it says what to do.
        """
        server, before = self.server, self.course.spent()
        choice = yield from self._choose()
        held = server.release.for_head(choice.form)
        solved, params, start = self.solver.solve(choice.form, choice.start, held)
        server.solved_params = params
        if start is not None:
            server.start_from(start)
        self._details = choice.recorded(solved.report)
        self.apart = self.course.spent() - before

    def complete(self) -> Requests[None]:
        """Score it."""
        before = self.course.spent()
        scored = yield from self.course.evaluate(0)
        self.apart += self.course.spent() - before
        self._record = self.course.round_record(
            0, self.apart, scored, method=self._form.name, details=self._details
        )
        self.server.start_loss = self._record.loss

    def record(self) -> dict[str, Any]:
        return {"closed_form": self._record}

    def kept(self) -> dict[str, Tensor]:
        solved = self.server.solved_params
        if solved is None or not self._demands.keeps_best:
            return {}
        return {"params": solved}

    def resume(self, tensors: Mapping[str, Tensor]) -> None:
        if self._demands.keeps_best:
            self.server.solved_params = tensors["params"]
            self.server.scored_model.make_room_for(len(tensors["params"]))

    def _choose(self) -> Requests[Choice]:
        """What a form that is open becomes; another is itself.

        Where labels and domains are confounded the head is no good start of training
        either: a run that may keep the trained head begins at random weights.
        """
        form, components = self._form, self.solver.components()
        if components is None:
            return Choice(form, {}, form)
        share = confounded_share(components)
        if share > LARGER_PART:
            keeps_best = self._demands.keeps_best
            chosen, details = choose_untuned(form, share, keeps_best)
            return Choice(chosen, details, None if keeps_best else chosen)
        if not form.is_open:
            return Choice(form, {"confounded_share": share}, form)
        components = components.merged(form.grain)
        if form.NEEDS == "means":
            components = replace(components, scatter=None)
        message = LeaveOneOut(components).to_bytes()
        clients = self.course.membership.here(sorted(self.server.uploaded_rows))
        asked = dict.fromkeys(clients, (message,))
        counts = yield from self.course.ask(LEAVE_ONE_OUT, 0, asked)
        chosen, details = choose_by_hits(form, counts, share)
        if self.server.task.scored is None:
            return Choice(chosen, details, chosen)
        return Choice(chosen, details, choose_start(form, counts))
