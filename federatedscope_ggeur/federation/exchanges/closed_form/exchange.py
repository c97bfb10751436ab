"""Chooses, solves and scores the one-shot (closed-form) head."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.client import MOST_HELD_OUT
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.server import OneShotMessages
from federatedscope_ggeur.federation.wire import schema
from federatedscope_ggeur.federation.wire.schema import Declared
from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.models import ClosedForm, Model, recast, to_vector
from federatedscope_ggeur.models.closed_forms import (
    LARGER_PART,
    UNLINKED,
    ComponentBook,
    Components,
    Solved,
    confounded_share,
    spread_of_scores,
    temperatures,
)
from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant
from federatedscope_ggeur.models.closed_forms.left_out import CONFIDENCE_BINS
from federatedscope_ggeur.models.folding import AverageHead, Averaging, calibrated
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting import Privacy, RoundRecord

from ..base import (
    Exchange,
    Request,
    RequestKind,
    Requests,
    refusal,
    register_exchange,
    require_known,
)
from ..statistics.keys import needed_content
from ..statistics.upload import StatisticsUpload
from . import keys
from .choice import (
    NO_HEAD,
    OWN_HEADS,
    Choice,
    Temperature,
    best_finalist,
    choose_by_hits,
    choose_by_losses,
    choose_untuned,
    cost_of_withheld,
    lda_of,
    units_note,
)
from .client import ClosedFormClient, ClosedFormSettings
from .keeping import (
    KnownRows,
    Plan,
    Training,
    plan_training,
    share_to_hold_out,
    unmeasured_share,
)
from .messages import (
    Confidences,
    HitCounts,
    LeaveOneOut,
    LogLosses,
    LossQuery,
    OneCandidate,
)


class HeadSolver:
    """Collects the statistics that the one-shot head needs, and solves for the head.

    Parameters
    ----------
    form : ClosedForm
        The form that the settings name.
    compares : bool
        Whether rows are left out, or the run chooses between two heads.
    domains : iterable of str
        The domains of all clients.
    seed : int
    """

    def __init__(
        self, form: ClosedForm, compares: bool, domains: Iterable[str], seed: int
    ):
        self.form, self._seed, self._compares = form, seed, compares
        self._book: ComponentBook | None = None
        if self._compares or not form.partition_free:
            self._book = ComponentBook(tuple(dict.fromkeys(domains)))

    @property
    def candidates(self) -> tuple[ClosedForm, ...]:
        """The candidate forms among which clients' rows choose."""
        return self.form.candidates()

    def add(self, upload: StatisticsUpload) -> None:
        """Keep a client's upload."""
        if self._book is not None:
            self._book.add(upload.statistics, upload.client, upload.domain)

    def components(self) -> Components | None:
        """The components of all clients; None if the run does not compare heads."""
        held = self._held() if self._compares else None
        return held if held is not None and len(held.counts) else None

    def solve(self, form: ClosedForm, statistics: Statistics) -> Solved:
        """Solve `form` from the merged `statistics`; the head is on raw embeddings.

        Raises
        ------
        StatisticsError
            The statistics do not allow this head. The error says what to do.
        """
        return form.solve(statistics, self._held(), self._seed)

    def _held(self) -> Components | None:
        return None if self._book is None else self._book.components()


logger = get_logger(__name__)


def _validate(exchange: ClosedFormExchange, request: Request, counts: HitCounts):
    """Require a count for each candidate, and scores of all rows in statistics."""
    uploaded = exchange.server.merged.rows
    require_known(counts.client, uploaded)
    candidates = len(exchange.solver.candidates)
    if len(counts.hits) != candidates:
        problem = f"{len(counts.hits)} counts, but there are {candidates} candidates"
        raise refusal(counts.client, "hits", problem)
    training = min(counts.scored, counts.rows - counts.validation)
    if training < uploaded[counts.client]:
        raise refusal(
            counts.client,
            "rows",
            f"{training} training rows were scored, but the client's statistics have "
            f"{uploaded[counts.client]}",
        )


def bound_rows(declared: Declared, exchange: Any, answer: Any) -> None:
    """Refuse an answer over more rows than the client declared."""
    rows = declared.train + declared.val
    declared.check_rows(answer.client, "rows", answer.rows, rows)


LEAVE_ONE_OUT = RequestKind(
    name="hit_counts",
    message="components",
    deadline="round0",
    parts=(LeaveOneOut,),
    respond=lambda side, message: side.hit_counts(message),
    answer_message="hit_counts",
    answer=HitCounts,
    validate=_validate,
    bound=bound_rows,
    largest=lambda e: schema.PLAIN + 8 * len(e.solver.candidates),
    doing="trying heads on left-out rows",
    shared_parts=True,
)


def require_uploader(exchange: Exchange, request: Request, answer: Any) -> None:
    """Refuse an answer of a client that has sent no statistics."""
    require_known(answer.client, exchange.server.merged.rows)


def _validate_losses(
    exchange: ClosedFormExchange, request: Request, answer: LogLosses
) -> None:
    require_uploader(exchange, request, answer)
    answer.require_of(exchange.asked)


LOG_LOSSES = RequestKind(
    name="log_losses",
    message="loss_query",
    deadline="round0",
    parts=(LeaveOneOut, LossQuery),
    respond=lambda side, message, query: side.log_losses(message, query),
    answer_message="log_losses",
    answer=LogLosses,
    validate=_validate_losses,
    bound=bound_rows,
    optional_parts=True,
    shared_parts=True,
)


def _bound_counts(declared: Declared, exchange: Any, answer: Confidences) -> None:
    rows = int(answer.counts.sum())
    declared.check_rows(answer.client, "counts", rows, declared.train + declared.val)


CONFIDENCES = RequestKind(
    name="confidences",
    message="confidence_query",
    deadline="round0",
    parts=(OneCandidate,),
    respond=lambda side, query: side.confidences(query),
    answer_message="confidences",
    answer=Confidences,
    validate=require_uploader,
    bound=_bound_counts,
)


#: The messages that name the one-shot head, in a checkpoint.
_ONE_SHOT = ("components", "inside", "outside")


@register_exchange("closed_form")
class ClosedFormExchange(Exchange):
    """Chooses and solves the one-shot head, and scores it when clients are prepared.

    Attributes
    ----------
    solver : HeadSolver
    lda : LinearDiscriminant or None
        The LDA that clients' rows prefer. Clients' own heads are made from this LDA.
    asked : LossQuery
        The log-losses that clients were asked for.
    """

    KINDS = (LEAVE_ONE_OUT, LOG_LOSSES, CONFIDENCES)
    CLIENT = ClosedFormClient
    TAKES_WEIGHTS = True
    SETTINGS = keys.ClosedFormKeys
    objections = staticmethod(keys.objections)
    REVEALS = (
        "for each client, how many of the rows in its statistics each candidate "
        "head classifies correctly (with weights of rows: rounded sums of the weights "
        "of these rows), and the rounded log-losses of the chosen head, or "
        "of up to six among which auto chooses, on these rows (ggeur.keep average: "
        "with five floors each); with ggeur.confidences "
        "also how sure this head is of them, in 65 bins"
    )

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
        self._sent = b""
        self._fit: Components | None = None
        self.lda: LinearDiscriminant | None = None
        self.asked: LossQuery
        self._withheld: Mapping[str, float] = {}
        self._told = KnownRows((), 0)
        self._plan = Plan()
        self._record: RoundRecord | None = None

    @classmethod
    def is_due(cls, demands: Demands) -> bool:
        return demands.closed_form

    @classmethod
    def privacy(cls, before: Privacy, run: Demands) -> Privacy:
        if not (run.leaves_one_out or run.asks_losses):
            return before
        seen = [*before.server_sees, "each client's number of rows"]
        if run.leaves_one_out:
            seen.append("each client's hits of heads on rows left out")
        if run.asks_losses:
            seen.append("each client's log-losses of heads on rows left out")
        if CONFIDENCES in cls.answered(run):
            seen.append("how sure a head is of each client's rows, in 65 bins")
        whose = {"class": "all", "domain": "each domain", "client": "each client"}
        if run.compares_kinds:
            whose["client"] = "each domain or client"
        what = f"counts and means of the classes of {whose[run.grain]}"
        if run.class_scatters:
            what += ", and a scatter for each class"
        elif needed_content(run) != "means":
            what += ", and one scatter"
        clients = [*before.clients_see, what]
        return replace(before, server_sees=seen, clients_see=clients)

    @classmethod
    def answered(cls, demands: Demands) -> tuple[RequestKind, ...]:
        kinds = [LEAVE_ONE_OUT] if demands.leaves_one_out else []
        if demands.asks_losses:
            kinds.append(LOG_LOSSES)
        if demands.seeks_temperature and demands.tells_confidence:
            kinds.append(CONFIDENCES)
        return tuple(kinds)

    def on_statistics(self, upload: StatisticsUpload) -> None:
        self.solver.add(upload)

    def begin(self) -> Requests[None]:
        """Choose and solve the head, and the start of training.

        Raises
        ------
        StatisticsError
            The statistics do not allow this head. The error says what to do.
        """
        server, before = self.server, self.course.spent()
        if self._demands.keeps_best and self._lacks_statistics():
            logger.warning("%s", NO_HEAD)
            if server.task.hidden_units:
                server.held_share = self._share_to_hold_out()
            return
        components = self.solver.components()
        if components is not None:
            components = self._with_scatters(components)
            self._fit = self._form.to_leave_out(components)
            self.solver.form = self._form = self._form.for_components(self._fit)
        choice = yield from self._choose(components)
        release = server.merged.release
        if release.solve is not None:
            self._take_noisy(release.solve(choice.form), release.hidden_by)
            return
        held = release.for_head(self._form)
        choice, temperature, solved = yield from self._decide(components, choice, held)
        form, start = choice.form, choice.start
        begun = None
        if start is not None:
            begun = solved if start is form else self.solver.solve(start, held)
        if temperature.value != 1.0:
            _cool(solved, begun, temperature.value, components)
        vector = to_vector(solved.model)
        if self._demands.keeps_best:
            vector = recast(solved.model, vector, server.scored_model, trained=False)
        raised = temperature.with_floor
        if raised is not None:
            more = raised.temperature / temperature.value
            vector = calibrated(server.scored_model, vector, more, raised.floor)
        server.solved_params, server.temperature = vector, temperature.value
        if begun is not None:
            server.start_from(to_vector(begun.model))
        self._plan_rounds(choice, temperature.value)
        self._details = {**choice.recorded(solved.report), **temperature.details}
        tried = self._demands.leaves_one_out
        notes = [units_note(form, held, tried, release)]
        if self._demands.personal and lda_of(form) is None:
            notes.append(OWN_HEADS)
        for note in filter(None, notes):
            logger.warning("%s", note)
            known = self._details.get("note")
            self._details["note"] = f"{known}. {note}" if known else note
        self.apart = self.course.spent() - before

    def _lacks_statistics(self) -> bool:
        """Whether nobody sent statistics, and nothing else is known of the classes."""
        needed = self._demands.statistics and self._form.known is None
        nobody_sent = not self.server.merged.statistics.classes
        return needed and self._trains_on_all and nobody_sent

    @property
    def _trains_on_all(self) -> bool:
        """Whether clients train on rows of withheld classes, too."""
        return self._demands.chosen.get("train_withheld", True)

    def _plan_rounds(self, choice: Choice, temperature: float) -> None:
        """Decide whether the run trains, and how with the one-shot head.

        An MLP learns with offsets. But a method that changes training may use logits
        without them, and of classes that nobody sent offsets would say that rows are
        not of them. If labels and domains are confounded in part, the one-shot head is
        no guide either.
        """
        server, plan, candidate = self.server, self._plan, choice.candidate
        if plan.ends:
            server.trains = False
            logger.info("%s", plan.ends)
        if not plan.averages:
            return
        averaging = Averaging(
            share=unmeasured_share(self._told),
            unsent=server.merged.statistics.absent if self._told.absent else (),
            confounded=plan.confounded,
        )
        offsets = False
        if plan.hidden and candidate is not None:
            server.held_share = self._share_to_hold_out(choice)
            offsets = not averaging.alone and not server.task.method.changes_training
        server.averaging = replace(averaging, with_offsets=offsets)
        if candidate is not None and (offsets or server.held_share):
            inside = OneCandidate(candidate, temperature, gives_offsets=offsets)
            outside = replace(inside, summed=False)
            server.one_shot = OneShotMessages(
                components=self._sent,
                inside=inside.to_bytes(),
                outside=outside.to_bytes(),
                summed=frozenset(server.merged.rows),
            )

    def _share_to_hold_out(self, choice: Choice | None = None) -> float:
        """The share of rows that give an MLP its temperature; see `share_to_hold_out`.

        If nobody sent statistics, the number of rows is unknown. They are few then, and
        clients hold out as many as they may. A linear head starts from the one-shot
        head, which has seen all rows.
        """
        demands = self._demands
        asks = demands.scales_trained and demands.reports_scores
        if not asks or not self._trains_on_all or self.course.plan.server_evaluates:
            return 0.0
        if choice is None:
            return MOST_HELD_OUT
        least = self.server.settings.min_samples
        return share_to_hold_out(choice, self._told, least)

    def _take_noisy(self, solved: Solved, hidden_by: str) -> None:
        """Take the head made from statistics with noise, without asking clients."""
        self.server.solved_params = to_vector(solved.model)
        self.server.start_from(self.server.solved_params)
        self._details = {**solved.report, "not_calibrated": _not_scored(hidden_by)}

    @property
    def is_calibrated(self) -> bool:
        """Whether leave-one-out has found a temperature for the head."""
        return "temperature" in self._details

    def complete(self) -> Requests[None]:
        """Score the one-shot head, if there is one, and make its record."""
        if self.server.solved_params is None:
            return
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
        server = self.server
        kept: dict[str, Tensor] = {}
        if server.held_share:
            kept["held_share"] = torch.tensor(server.held_share, dtype=torch.float64)
        if server.solved_params is None or not self._demands.keeps_best:
            return kept
        kept["params"] = server.solved_params
        kept["trains"] = torch.tensor(int(server.trains))
        averaging = server.averaging
        if averaging is not None:
            share = torch.tensor(averaging.share, dtype=torch.float64)
            kept["averaging.share"] = share
            kept["averaging.with_offsets"] = torch.tensor(int(averaging.with_offsets))
            kept["averaging.confounded"] = torch.tensor(int(averaging.confounded))
            unsent = torch.tensor(averaging.unsent, dtype=torch.int64)
            kept["averaging.unsent"] = unsent
        if server.one_shot is not None:
            for name in _ONE_SHOT:
                kept[name] = wire.as_bytes(getattr(server.one_shot, name))
            kept["summed"] = torch.tensor(sorted(server.one_shot.summed))
        return kept

    def resume(self, tensors: Mapping[str, Tensor]) -> None:
        server = self.server
        server.held_share = float(tensors.get("held_share", 0.0))
        if "params" not in tensors:
            return
        server.solved_params = tensors["params"]
        server.scored_model.make_room_for(len(tensors["params"]))
        server.trains = bool(tensors["trains"])
        if "averaging.share" in tensors:
            server.averaging = Averaging(
                share=float(tensors["averaging.share"]),
                with_offsets=bool(tensors["averaging.with_offsets"]),
                unsent=tuple(tensors["averaging.unsent"].tolist()),
                confounded=bool(tensors.get("averaging.confounded", 0)),
            )
        if "summed" in tensors:
            components, inside, outside = (
                wire.of_bytes(tensors[name]) for name in _ONE_SHOT
            )
            summed = frozenset(tensors["summed"].tolist())
            server.one_shot = OneShotMessages(components, inside, outside, summed)

    def _choose(self, components: Components | None) -> Requests[Choice]:
        """Choose the finalists of an open form; other forms are kept as they are.

        If labels and domains are confounded, the head is no good start for training. A
        run that may keep the trained head then starts at random weights. But if domains
        have no classes in common, nobody can tell whether they are. A run that averages
        two heads then trusts each by half, and training starts at random weights.
        """
        form = self._form
        if components is None:
            return Choice(form, {}, form)
        share = confounded_share(components)
        keeps_best = self._demands.keeps_best
        leaves_one_out = self._demands.leaves_one_out
        averages = (
            keeps_best and self._demands.of(keys.ClosedFormKeys).keep == "average"
        )
        unknown = share == UNLINKED and averages and leaves_one_out
        confounded = share > LARGER_PART and not unknown
        if confounded and (form.is_open or keeps_best):
            return choose_untuned(form, share, keeps_best)
        if confounded or not leaves_one_out:
            return Choice(form, {"confounded_share": share}, form, (0,), 0)
        self._sent = self._left_out_of()
        counts = yield from self._ask(LEAVE_ONE_OUT, self._sent)
        uploaded, classes = self.server.merged.rows, components.num_classes
        domains = self.server.client_domains
        sizes = Counter(domains.values())
        alone = [k for k, domain in domains.items() if sizes[domain] == 1]
        self._withheld = {
            "client": cost_of_withheld(counts, uploaded, classes, domains),
            "domain": cost_of_withheld(counts, uploaded, classes, alone),
        }
        choice = choose_by_hits(form, counts, share)
        if keeps_best:
            unsent = classes - len(components.labels.unique())
            sent = sum(uploaded[count.client] for count in counts)
            self._told = KnownRows(counts, sent, unsent)
            hidden = self.server.task.hidden_units
            beside = Training(averages, hidden, components.dim)
            candidates = form.candidates()
            self._plan = plan_training(choice, candidates, self._told, beside)
            details = {**choice.details, **self._plan.details}
            start = None if hidden or unknown else choice.start
            choice = choice._replace(details=details, start=start)
        return choice

    def _decide(
        self, components: Components | None, choice: Choice, held: Statistics
    ) -> Requests[tuple[Choice, Temperature, Solved]]:
        """Choose a finalist and its temperature by clients' rows; solve the head."""
        candidates, places = self._form.candidates(), choice.finalists
        solved = [self.solver.solve(candidates[place], held) for place in places]
        temperature = Temperature(1.0, {})
        if len(places) > 1 or (
            solved and not self._not_calibrated(choice, solved[0].model)
        ):
            assert components is not None, "left-out rows have scored the candidates"
            by = tuple(
                temperatures(spread_of_scores(one.model, components)) for one in solved
            )
            answers = yield from self._losses(choice, by)
            choice, temperature = choose_by_losses(
                candidates, choice, answers, self.asked, self._withheld
            )
        if choice.candidate is None:
            head = self.solver.solve(choice.form, held)
        else:
            head = solved[places.index(choice.candidate)]
        self.lda = lda_of(best_finalist(candidates, choice, lda_of))
        if self.server.task.scored is not None and choice.start is not None:
            start = best_finalist(candidates, choice, lambda one: one.can_start)
            choice = choice._replace(start=(start or self._form.untuned()).as_start())
        hidden = self.server.merged.release.hidden_by or self._demands.brings_totals
        if hidden and self._demands.is_cooled:
            value = choice.form.temperature_of(head, held)
            if value is not None:
                told = {"temperature": value, "temperature_by": "totals"}
                return choice, Temperature(value, told), head
        reason = self._not_calibrated(choice, head.model)
        if choice.candidate is None:
            reason = reason or "the run leaves no rows out"
        if reason:
            return choice, Temperature(1.0, {"not_calibrated": reason}), head
        if "temperature" in temperature.details and self._demands.tells_confidence:
            bins = yield from self._confidences(choice.candidate, temperature)
            temperature.details["confidence_bins"] = bins
        return choice, temperature, head

    def _losses(
        self, choice: Choice, by: tuple[tuple[float, ...], ...]
    ) -> Requests[list[LogLosses]]:
        """Ask clients for the log-losses of the finalists."""
        has_floors = isinstance(self.server.scored_model, AverageHead)
        self.asked = LossQuery(choice.finalists, by, has_floors)
        # Clients that have counted hits have the components.
        parts = b"" if self._sent else self._left_out_of()
        return (yield from self._ask(LOG_LOSSES, parts, self.asked.to_bytes()))

    def _confidences(
        self, candidate: int | None, temperature: Temperature
    ) -> Requests[list[int]]:
        """Ask clients how sure a candidate is of their left-out rows; returns bins."""
        assert candidate is not None, "left-out rows have scored the candidates"
        query = OneCandidate(candidate, temperature.value)
        raised = temperature.with_floor
        if raised is not None:
            query = OneCandidate(candidate, raised.temperature, floor=raised.floor)
        counted = yield from self._ask(CONFIDENCES, query.to_bytes())
        counts = torch.zeros(CONFIDENCE_BINS, dtype=torch.int64)
        return sum((one.counts for one in counted), counts).tolist()

    def _not_calibrated(self, choice: Choice, model: Model) -> str:
        """The reason why the head gets no temperature; "" if it can get one."""
        confounded = choice.details.get("confounded_share", 0.0) > LARGER_PART
        if confounded and not self._plan.averages:
            return "labels and domains are confounded"
        if not self._demands.is_cooled:
            return f"{setting('temperature')} is none"
        if self._demands.brings_totals:
            return "the head of this run is made only from totals"
        if hidden := self.server.merged.release.hidden_by:
            return _not_scored(hidden)
        if not self._demands.seeks_temperature or not model.can_cool:
            return "no rows can be left out of a head of this form"
        return ""

    def _with_scatters(self, components: Components) -> Components:
        """The components, with the scatters of classes if the form can use them."""
        if self._form.takes_class_scatters:
            return components.with_scatters_of(self.server.merged.statistics)
        return components

    def _left_out_of(self) -> bytes:
        """The message with what the form needs of the components to leave rows out."""
        needed = self._fit
        assert needed is not None, "a run of totals leaves no rows out"
        if self._form.NEEDS == "means":
            needed = replace(needed, scatter=None)
        return LeaveOneOut(needed).to_bytes()

    def _ask(self, kind: RequestKind, *parts: bytes) -> Requests[list]:
        """Ask all clients that have sent statistics; returns their answers."""
        return self.ask_present(kind, 0, sorted(self.server.merged.rows), *parts)


def _cool(
    solved: Solved,
    begun: Solved | None,
    temperature: float,
    components: Components | None,
) -> None:
    """Divide the logits of the head, and of the start, by the temperature.

    If training starts from another head, its temperature is scaled to its scores. There
    is none in a run of totals, which have no components.
    """
    if begun is not None and begun is not solved and begun.model.can_cool:
        assert components is not None, "a run of totals starts from its head"
        apart = spread_of_scores(solved.model, components)
        other = spread_of_scores(begun.model, components)
        if apart:
            begun.model.cool(temperature * other / apart)
    solved.model.cool(temperature)


def _not_scored(hidden_by: str) -> str:
    """The reason why a head has no temperature, see `Release.hidden_by`."""
    return f"under {hidden_by} no client reports scores of its own rows"
