"""Evaluation: clients score the head on their rows, or the server on its rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.federation.client import held_out_count
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.settings import RoleSettings
from federatedscope_ggeur.federation.wire.schema import Declared
from federatedscope_ggeur.models import Model, fold
from federatedscope_ggeur.models.closed_forms import LOSS_UNITS, in_units
from federatedscope_ggeur.models.closed_forms.left_out import log_losses
from federatedscope_ggeur.models.folding import AverageHead
from federatedscope_ggeur.reporting import (
    Privacy,
    RoundRecord,
    TemperatureScaling,
    WorstClient,
    average,
)
from federatedscope_ggeur.reporting.json_values import from_json_value
from federatedscope_ggeur.settings import Objection, Objections, Section, key, names

from ..base import (
    ClientSide,
    Exchange,
    Request,
    RequestKind,
    Requests,
    refusal,
    register_exchange,
    require_known,
)
from ..closed_form.choice import Calibration, calibrations
from ..closed_form.client import ClosedFormClient
from ..closed_form.keeping import LEAST_HELD_OUT, LEAST_VALIDATION
from ..closed_form.messages import LogLosses, LossQuery
from ..training.exchange import TrainingExchange, head_broadcast, own_broadcast
from ..training.messages import Broadcast
from ..training.screening import remedy
from .scores import Score, ScoreReport, average_metrics, evaluate, score_of


class EvaluationKeys(Section):
    """The settings of evaluation."""

    unseen_domains: tuple[str, ...] = key(
        (),
        "Domains for the test alone: no client holds them, and every evaluation "
        "scores them (leave one domain out).",
        names("domain names"),
    )


def objections(run: Demands) -> Objections:
    """The settings that cannot go with early stopping by test rows."""
    if run.best_by.startswith("test_"):
        why = "since test rows may not decide when a run ends"
        yield Objection("best_by", {"patience": [0]}, why)


#: Trained heads are too sure more often than not, and in raw spaces by far. Near 1
#: steps are small, since most heads are nearly right.
_TEMPERATURES = tuple(
    2.0 ** (quarter / 4)
    for quarter in (*range(-16, -7, 4), -6, *range(-4, 5), *range(6, 25, 2), 28, 32)
)


#: The scale of the prior of log temperatures, chosen by measurement.
_LOG_SCALE = 0.4
#: The least logit, which stands for that of a class without a score.
_NO_SCORE = -1e6
#: The one-shot head's shares in a mean, of which rows not trained on choose one.
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def _prior(temperature: float) -> float:
    """What a temperature costs in nats: its logarithm has a Laplace prior.

    Few rows hardly move it from 1, and many rows move it by any factor. Where hardly
    any row is wrong, each sharper temperature has less log-loss, and the prior alone
    stops it.
    """
    return abs(math.log(temperature)) / _LOG_SCALE


class EvaluationClient(ClientSide):
    """Scores heads on the client's own rows."""

    _scored: Broadcast | None = None
    _absent: tuple[int, ...] | None = None  # what the first request names
    _validated: tuple[Broadcast, LossQuery] | None = None

    def evaluate(self, broadcast: Broadcast) -> ScoreReport:
        """Score a head on each split. Without training, a client scores only one head.

        Raises
        ------
        MessageError
            This is a second head, but the run does not train. A server that could
            choose heads could reconstruct rows from their losses.
        """
        if not self.client.settings.demands.trains:
            before = self._scored or broadcast
            if broadcast.round_number or not before.params.equal(broadcast.params):
                raise self.refused(
                    "a second head to score, but a run without training has only one"
                )
            self._scored = broadcast
        return self.score(broadcast, self.rows)

    def score(self, broadcast: Broadcast, rows: Mapping[str, Any]) -> ScoreReport:
        """Score `eval_params` of a round on each split of `rows`."""
        if self._absent is None:
            self._absent = broadcast.absent
        if broadcast.absent not in ((), self._absent):
            raise self.refused("rows of other classes were told apart before", "absent")
        client, settings = self.client, self.client.settings
        device, advice = settings.training.device, _advice(settings)
        head = client.memory.frozen(client.scored_model, self.eval_params(broadcast))
        scores = {}
        for split, held in rows.items():
            by = broadcast.temperature if split == "test" else None
            score = score_of(
                head, held.features, held.labels, device, advice, by, broadcast.absent
            )
            scores[split] = score.told(settings.min_samples)
        return ScoreReport(client.number, broadcast.round_number, scores)

    def validation_losses(self, broadcast: Broadcast, query: LossQuery) -> LogLosses:
        """The log-loss of the trained head at each temperature, on rows that training
        did not see.

        These are validation rows and `Client.held_out`. A client with fewer of either
        than ``ggeur.privacy.min_samples`` reports none of them. There is one candidate,
        the head; or the head is a mean of two, and the candidates are `_SHARES` of the
        one-shot head, each with several floors.

        Raises
        ------
        MessageError
            The client has answered another such request before, or there is no such
            candidate.
        """
        before = self._validated or (broadcast, query)
        if not before[0].params.equal(broadcast.params) or before[1] != query:
            raise self.refused(
                "log-losses on rows not trained on were asked for before, for another "
                "head; a client answers only once"
            )
        self._validated = before
        client, least = self.client, self.client.settings.min_samples
        model, val = client.scored_model.at(broadcast.params), self.rows.get("val")
        number, held = 0, client.held_out()
        self._check(query, model, held)
        losses = torch.zeros(query.shape, dtype=torch.float64)
        if val is not None and len(val) >= least:
            number += len(val)
            logits = _candidates(model, val.features, query)
            losses += _losses(logits, val.labels, query)
        if held.any():
            number += int(held.sum())
            one_shot = None
            if client.one_shot is not None:
                side = ClosedFormClient(client, {})
                one_shot = side.left_out(client.merged, client.one_shot, held)
            logits = _candidates(model, client.features[held], query, one_shot)
            losses += _losses(logits, client.labels[held], query)
        return LogLosses(client.number, number, in_units(losses))

    def _check(self, query: LossQuery, model: Model, held: Tensor) -> None:
        """Require candidates of which the client can compute losses."""
        asked = query.candidates, query.has_floors
        mean = asked == (tuple(range(len(_SHARES))), True)
        if self.client.one_shot is not None:
            fits = mean
        elif mean:
            # With rows in it, the one-shot head would have to leave them out.
            fits = isinstance(model, AverageHead) and not held.any()
        else:
            fits = asked == ((0,), False)
        if not fits:
            raise self.refused("there are no such heads", "candidates")

    def eval_params(self, broadcast: Broadcast) -> Tensor:
        """The weights [P + Q] that the client scores after a round, on raw embeddings.

        They are the broadcast weights or the client's own.
        """
        client, number = self.client, broadcast.round_number
        method = client.task.method
        context = client.context(number, broadcast.params, broadcast.download)
        context = replace(context, state=client.state_before(number + 1))
        params = method.eval_params(context)
        return fold(client.model, params, client.space) if method.personal else params

    def shared_model(self, broadcast: Broadcast) -> Model | None:
        """The global model of a round, on raw embeddings; None if there is none."""
        client, method = self.client, self.client.task.method
        if not method.federated:
            return None
        params = broadcast.params
        # Only clients with models of their own get the model in the space.
        if method.personal:
            params = fold(client.model, params, client.space)
        return client.scored_model.at(params)


def _logits(model: Model, rows: Tensor) -> Tensor:
    return model.in_chunks(model, rows).cpu().double()


def _candidates(
    model: Model, rows: Tensor, query: LossQuery, one_shot: Tensor | None = None
) -> list[Tensor]:
    """The logits of rows [n, D] by each candidate of a query, without its floor.

    `one_shot` stands in place of the logits of the one-shot head in a mean.
    """
    if len(query.candidates) == 1:
        return [_logits(model, rows)]
    mean, dim = model, rows.shape[1]
    assert isinstance(mean, AverageHead), "a mean has two halves"
    if one_shot is None:
        one_shot = _logits(mean.one_shot, rows)
    both = torch.cat([rows, one_shot.to(rows.dtype)], dim=1)

    def by_share(x: Tensor) -> Tensor:
        halves = mean.halves(x[:, dim:], x[:, :dim])
        return torch.stack([mean.mixed(halves, share) for share in _SHARES], dim=1)

    logits = mean.in_chunks(by_share, both).cpu().double()
    return list(logits.unbind(dim=1))


def _losses(logits: Sequence[Tensor], labels: Tensor, query: LossQuery) -> Tensor:
    """The log-losses of all rows by each candidate of a query, in nats.

    The shape is that of the answer. A class without a score has the probability 0: all
    candidates count the same rows.
    """
    each = []
    for one, by in zip(logits, query.temperatures):
        losses, _ = log_losses(one.clamp(min=_NO_SCORE), labels, by, query.floors)
        each.append(losses.sum(dim=1))
    return torch.cat(each).view(query.shape)


def _advice(settings: RoleSettings) -> str:
    return remedy(settings.task.method, settings.training.optimizer.lr)


def _validate(
    exchange: EvaluationExchange, request: Request, report: ScoreReport
) -> None:
    """Require that the scores are of this round."""
    require_known(report.client, exchange.server.client_domains)
    if report.round_number != request.round_number:
        raise refusal(
            report.client,
            "round_number",
            f"scores of round {report.round_number} in round {request.round_number}",
        )


def _bound(declared: Declared, exchange: Any, report: ScoreReport) -> None:
    """Refuse scores of more rows than the client declared for the split."""
    for split, score in report.scores.items():
        rows = getattr(declared, split)
        declared.check_rows(report.client, f"{split}_total", score.total, rows)


EVALUATE = RequestKind(
    name="evaluate",
    message="evaluate",
    remembered=1,  # without training no other; and it names the absent classes
    deadline="evaluate",
    parts=(Broadcast,),
    respond=lambda side, broadcast: side.evaluate(broadcast),
    answer_message="metrics",
    answer=ScoreReport,
    validate=_validate,
    bound=_bound,
    part_schema=lambda client: client.scored_schema,
    shared_parts=True,
)


def _validate_losses(
    exchange: EvaluationExchange, request: Request, answer: LogLosses
) -> None:
    require_known(answer.client, exchange.server.client_domains)
    answer.require_of(exchange.asked)


def _bound_unseen(
    declared: Declared, exchange: EvaluationExchange, answer: LogLosses
) -> None:
    """Refuse losses of more rows than the client may have kept from training."""
    most = declared.val + held_out_count(declared.train, exchange.server.held_share, 0)
    if answer.rows > most:
        problem = f"{answer.rows} rows, but it may have kept {most} from training"
        raise refusal(answer.client, "rows", problem)


VALIDATION_LOSSES = RequestKind(
    name="validation_losses",
    message="validation_query",
    deadline="evaluate",
    parts=(Broadcast, LossQuery),
    respond=lambda side, *parts: side.validation_losses(*parts),
    answer_message="validation_losses",
    answer=LogLosses,
    validate=_validate_losses,
    bound=_bound_unseen,
    part_schema=lambda client: client.scored_schema,
)


@register_exchange("evaluation")
class EvaluationExchange(Exchange):
    """Gets the head scored after each round in which an evaluation is due.

    Attributes
    ----------
    scores : dict from split to dict from domain to Score
        The scores of the last evaluation.
    reports : dict from client number to ScoreReport
        The clients' reports of the last evaluation, also of unseen clients.
    """

    KINDS = (EVALUATE, VALIDATION_LOSSES)
    CLIENT = EvaluationClient
    TAKES_WEIGHTS = True
    SETTINGS = EvaluationKeys
    objections = staticmethod(objections)
    REVEALS = (
        "each client's scores: rows, hits and the sum of their losses, also without "
        "the rows of classes that nobody sent; once rounded log-losses on rows for "
        "validation or held out of training, at 25 temperatures, for up to five heads "
        "with five floors each, also of classes that the client withholds"
    )

    def __init__(self, course):
        super().__init__(course)
        self._asks_clients = self.server.settings.demands.reports_scores
        self.scores: dict[str, dict[str, Score]] = {}
        self.reports: dict[int, ScoreReport] = {}
        #: Of the last evaluation before a restart.
        self._accuracy_before: dict[str, float] = {}
        self._absent: tuple[int, ...] = ()

    @classmethod
    def answered(cls, demands: Demands) -> tuple[RequestKind, ...]:
        if not demands.reports_scores:
            return ()
        return cls.KINDS if demands.scales_trained else (EVALUATE,)

    @classmethod
    def privacy(cls, before: Privacy, run: Demands) -> Privacy:
        if VALIDATION_LOSSES not in cls.answered(run):
            return before
        losses = "each client's log-losses on rows for validation or held out"
        return replace(before, server_sees=[*before.server_sees, losses])

    def round(self, number: int) -> Requests[dict[str, Any]]:
        if not self.server.evaluates(number):
            return {}
        scored = yield from self.score(number)
        self._look_for_divergence(number)
        return scored

    def score(self, number: int) -> Requests[dict[str, Any]]:
        """Score the head, in round 0 the one-shot head; returns fields of a record."""
        course, server = self.course, self.server
        plan = course.plan
        splits = plan.evaluation.splits
        if number == 0:
            self._absent = self._find_absent()
        self.scores = {split: {} for split in splits}
        unseen = None
        if not plan.server_evaluates and self._asks_clients:
            reports = yield from course.ask(EVALUATE, number, self._to_score(number))
            self.reports = {report.client: report for report in reports}
            for split in splits:
                self.scores[split] = self.by_domain(reports, split, server.participants)
            if server.unseen:
                unseen = self.by_domain(reports, "test", server.unseen)
        for split, domains in course.rows.items():
            for name, rows in domains.items():
                by = self._temperature(number) if split == "test" else None
                score = self.score_rows(rows, number == 0, by)
                self.scores.setdefault(split, {})[name] = score
        tests = self.scores.get("test", {})
        accuracy = _accuracy(tests)
        avg, std = average(accuracy)
        total = sum(tests.values(), Score())
        probabilities = total.probabilities
        if probabilities is not None:
            absent = total.absent(len(self._absent))
            floor = self._floor(number)
            probabilities = replace(probabilities, absent=absent, floor=floor)
        return {
            "accuracy": accuracy,
            "avg": avg,
            "std": std,
            "loss": total.mean_loss,
            "unseen_clients": None if unseen is None else _accuracy(unseen),
            "metrics": self._metrics(),
            "probabilities": probabilities,
            "worst_client": self._worst_client(),
        }

    def scale_trained(
        self, number: int
    ) -> Requests[RoundRecord | TemperatureScaling | None]:
        """Choose and apply the trained head's temperature, and score its probabilities.

        The temperature is the likeliest one by validation rows and rows that were held
        out; see `_prior`. In a mean of two heads they also choose the floor and, unless
        labels and domains are confounded in part, the share of each head. The mean is
        scored as a calibrated head.

        Nothing is done if the head's logits cannot be divided, or if such rows are too
        few. At least `LEAST_VALIDATION` are needed, or `LEAST_HELD_OUT` if rows were
        held out. The result is None then.
        """
        server = self.server
        if not server.scored_model.at(server.head_params()).can_cool:
            return None
        if not self.scores:
            yield from self.score(number)  # the run goes on after its last round
        before, started = (self.scores, self.reports), self.course.spent()
        rows = sum(s.total for s in self.scores.get("val", {}).values())
        if rows < LEAST_VALIDATION and not server.held_share:
            return None
        losses, rows = yield from self._losses_on_unseen(number)
        if rows < (LEAST_HELD_OUT if server.held_share else LEAST_VALIDATION):
            return None
        means, as_it_is = losses / rows, _TEMPERATURES.index(1.0)
        by, floors = self.asked.temperatures, self.asked.floors
        fitted = calibrations(means, by, floors, rows, _prior)
        averaging = server.averaging
        if averaging is not None and not averaging.unsent:
            fitted[-1] = self._of_one_shot(means[-len(floors) :])
        places: Sequence[int] = range(len(fitted))
        if averaging is not None and averaging.confounded:
            places = [_SHARES.index(averaging.share)]
        best = min(places, key=lambda place: fitted[place].cost)
        temperature, floor, least, _ = fitted[best]
        server.trained_temperature = temperature
        if averaging is not None:
            share = _SHARES[best]
            server.averaging = replace(averaging, share=share, floor=floor)
        scored = yield from self.course.evaluate(number)
        spent = self.course.spent() - started
        if averaging is not None:
            details = {
                "share": share,
                "floor": floor,
                "temperature": temperature,
                "rows": rows,
                "loss": least,
            }
            return self.course.round_record(
                number, spent, scored, method="average", details=details
            )
        # The last round scored the same head, so its scores stand.
        self.scores, self.reports = before
        return TemperatureScaling(
            temperature=temperature,
            rows=rows,
            loss=least,
            loss_before=float(means[best, as_it_is]),
            probabilities=scored["probabilities"],
            **spent.recorded(),
        )

    def _of_one_shot(self, means: Tensor) -> Calibration:
        """The temperature and the floor that left-out rows gave the one-shot head.

        `means` [floors, temperatures] are its mean log-losses; between temperatures the
        log-loss is interpolated.
        """
        temperature, own = self.server.one_shot_calibration()
        place = min(range(len(means)), key=lambda k: abs(self.asked.floors[k] - own))
        logs = [math.log(each) for each in _TEMPERATURES]
        loss = float(np.interp(math.log(temperature), logs, means[place].numpy()))
        return Calibration(temperature, self.asked.floors[place], loss, loss)

    @property
    def asked(self) -> LossQuery:
        """The log-losses that clients are asked for."""
        means = self.server.averaging is not None
        candidates = tuple(range(len(_SHARES))) if means else (0,)
        return LossQuery(candidates, (_TEMPERATURES,) * len(candidates), means)

    def _losses_on_unseen(self, number: int) -> Requests[tuple[Tensor, int]]:
        """The log-losses of all candidates, in the shape of the query, and the number
        of rows.

        See `EvaluationClient.validation_losses`.
        """
        server, query = self.server, self.asked
        if self.course.plan.server_evaluates:
            head = server.scored_model.at(server.head_params())
            rows = list(self.course.rows["val"].values())
            logits = [_candidates(head, r.features, query) for r in rows]
            each = [_losses(z, r.labels, query) for z, r in zip(logits, rows)]
            return torch.stack(each).sum(dim=0), sum(map(len, rows))
        head_bytes = head_broadcast(server, number).to_bytes()
        parts = head_bytes, query.to_bytes()
        held = {k for k, one in self.reports.items() if "val" in one.scores}
        if server.held_share:
            held.update(server.aggregation_weights)
        asked_of = sorted(held.intersection(self.course.membership.prepared))
        answers = yield from self.ask_present(
            VALIDATION_LOSSES, number, asked_of, *parts
        )
        nothing = torch.zeros(query.shape, dtype=torch.int64)
        total: Tensor = sum((answer.losses for answer in answers), nothing)
        return total / LOSS_UNITS, sum(answer.rows for answer in answers)

    def score_rows(
        self,
        rows: Embeddings,
        closed_form: bool = False,
        temperature: float | None = None,
    ) -> Score:
        """Score the head of `Server.head_params` on the rows; see `evaluate`."""
        server = self.server
        return evaluate(
            server.scored_model,
            server.head_params(closed_form),
            rows.features,
            rows.labels,
            server.settings.training.device,
            _advice(server.settings),
            temperature,
            self._absent,
        )

    def _find_absent(self) -> tuple[int, ...]:
        """The classes that nobody sent statistics of; () if nobody sent any."""
        statistics = self.server.merged.statistics
        return statistics.absent if statistics.classes else ()

    def _temperature(self, number: int) -> float:
        """The number by which the head's logits were divided after a round."""
        server = self.server
        if number:
            return server.trained_temperature
        return server.temperature * server.one_shot_calibration()[0]

    def _floor(self, number: int) -> float:
        """The floor of the head's probabilities after a round."""
        server = self.server
        if number:
            return 0.0 if server.averaging is None else server.averaging.floor
        return server.one_shot_calibration()[1]

    def by_domain(
        self, reports: Iterable[ScoreReport], split: str, among: Iterable[int]
    ) -> dict[str, Score]:
        """Add up the scores of the clients `among` by domain, in client order.

        A domain without scores gets a score of no rows.
        """
        domains = {k: self.server.client_domains[k] for k in among}
        scores = {domain: Score() for domain in domains.values()}
        for report in sorted(reports, key=lambda report: report.client):
            if report.client in domains and split in report.scores:
                scores[domains[report.client]] += report.scores[split]
        return scores

    def _totals(self) -> dict[str, Score]:
        """The score of the last evaluation on each split, over all domains."""
        return {s: sum(d.values(), Score()) for s, d in self.scores.items()}

    def _look_for_divergence(self, number: int) -> None:
        """Look for divergence in the clients' largest weights and in the loss.

        The loss is that on test rows, or on other rows if test rows are not scored.
        """
        totals = self._totals()
        split = next(
            (s for s in ("test", "val") if totals.get(s, Score()).total), "train"
        )
        scores = {k: r.scores.get(split, Score()) for k, r in self.reports.items()}
        training = self.course.find(TrainingExchange)
        losses = {k: s.mean_loss for k, s in scores.items() if s.mean_loss is not None}
        loss = totals.get(split, Score()).mean_loss
        params = self.server.trained(self.server.params)
        training.divergence.look(number, loss, params, training.largest_weights, losses)

    def _worst_client(self) -> WorstClient | None:
        """The client, unseen or not, with the lowest accuracy on its test rows."""
        known = {int(k): accuracy for k, accuracy in self.client_accuracy().items()}
        if not known:
            return None
        worst = min(known, key=lambda k: (known[k], k))
        return WorstClient(worst, known[worst], fmean(known.values()))

    def client_accuracy(self) -> dict[str, float]:
        """The accuracy of each client with test rows, by number as text."""
        if not self.reports:
            return self._accuracy_before
        tests = {k: r.scores.get("test", Score()) for k, r in self.reports.items()}
        each = {str(k): tests[k].accuracy for k in sorted(tests)}
        return {k: accuracy for k, accuracy in each.items() if accuracy is not None}

    def progress(self) -> dict[str, Any]:
        absent = list(self._absent)
        return {"client_accuracy": self.client_accuracy(), "absent": absent}

    def resume_progress(self, values: Mapping[str, Any]) -> None:
        accuracy = values.get("client_accuracy", {})  # older files have none
        self._accuracy_before = from_json_value(dict[str, float], accuracy, "accuracy")
        absent = values.get("absent", [])
        self._absent = tuple(from_json_value(list[int], absent, "absent"))

    def _metrics(self) -> dict[str, float]:
        """FederatedScope's metrics of the last evaluation.

        Metrics are averages over clients, or over all rows if the server evaluates.
        """
        plan = self.course.plan
        each: list[Mapping[str, Score]]
        if plan.server_evaluates:
            each = [self._totals()]
        else:
            unseen = set(self.server.unseen)
            each = [r.scores for k, r in self.reports.items() if k not in unseen]
        return average_metrics(each, plan.evaluation.average)

    @property
    def _in_space(self) -> bool:
        """Whether clients make their own models in a space that they must know."""
        task = self.server.task
        return task.method.personal and task.space != "raw"

    def scored(
        self, number: int, closed_form: bool = False
    ) -> tuple[Broadcast, Broadcast]:
        """The weights to score after a round, in two forms.

        The first is the model on raw embeddings. The second is for clients with models
        of their own. It differs only if clients make these models in a space.
        """
        by, absent = self._temperature(number), self._absent
        head = head_broadcast(self.server, number, closed_form)
        head = replace(head, temperature=by, absent=absent)
        if not self._in_space:
            return head, head
        own = own_broadcast(self.server, number)
        return head, replace(own, temperature=by, absent=absent)

    def of_clients(self, scored: tuple[Broadcast, Broadcast]) -> dict[int, Broadcast]:
        """The weights that each client scores.

        A client that does not know the space yet gets none.
        """
        server, (head, own) = self.server, scored
        unseen = set(server.unseen)
        ready = unseen.union(self.course.membership.prepared)
        return {
            k: head if k in unseen else own
            for k in server.client_domains
            if k in ready or not self._in_space
        }

    def _to_score(self, number: int) -> dict[int, tuple[bytes]]:
        scored = self.scored(number, number == 0 and not self._in_space)
        packed = {id(one): (one.to_bytes(),) for one in scored}
        each = self.of_clients(scored)
        return {k: packed[id(each[k])] for k in self.course.membership.here(each)}


def _accuracy(scores: Mapping[str, Score]) -> dict[str, float | None]:
    return {name: score.accuracy for name, score in scores.items()}
