"""Evaluation: clients score the head on their rows, the server on its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from torch import Tensor

from federatedscope_ggeur.errors import MessageError
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
from federatedscope_ggeur.federation.exchanges.evaluation import keys
from federatedscope_ggeur.federation.exchanges.evaluation.messages import ScoreReport
from federatedscope_ggeur.federation.exchanges.evaluation.scores import (
    Score,
    average_metrics,
    evaluate,
    scores_by_domain,
)
from federatedscope_ggeur.federation.exchanges.training.divergence import remedy
from federatedscope_ggeur.federation.exchanges.training.exchange import (
    TrainingExchange,
    head_broadcast,
    own_broadcast,
)
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast
from federatedscope_ggeur.federation.settings import RoleSettings
from federatedscope_ggeur.federation.wire.declared import Declared
from federatedscope_ggeur.models import Model, fold
from federatedscope_ggeur.reporting import WorstClient, average


class EvaluationClient(ClientSide):
    """Scores heads on the client's own rows."""

    _scored: Broadcast | None = None

    def evaluate(self, broadcast: Broadcast) -> ScoreReport:
        """Score a head, by split. If nothing is trained, only one head is scored.

        Raises
        ------
        MessageError
            This is a second head and nothing is trained. By the losses of heads of its
            own choice a server could tell rows.
        """
        if not self.client.settings.demands.trains:
            before = self._scored or broadcast
            if broadcast.round_number or not before.params.equal(broadcast.params):
                problem = "a second head to score, and there is but one"
                raise MessageError(problem, field="kind", sender="the server")
            self._scored = broadcast
        return self.score(broadcast, self.rows)

    def score(self, broadcast: Broadcast, rows: Mapping[str, Any]) -> ScoreReport:
        """Score `eval_params` of a round on `rows`, by split."""
        client, params = self.client, self.eval_params(broadcast)
        scores = {
            split: evaluate(
                client.scored_model,
                params,
                held.features,
                held.labels,
                client.settings.training.device,
                _advice(client.settings),
                broadcast.temperature if split == "test" else None,
            )
            for split, held in rows.items()
        }
        return ScoreReport(client.number, broadcast.round_number, scores)

    def eval_params(self, broadcast: Broadcast) -> Tensor:
        """The weights [P + Q] that the client scores after a round, on raw embeddings:
        those broadcast, or its own.
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
        # Only clients with models of their own get it in the space.
        if method.personal:
            params = fold(client.model, params, client.space)
        return client.scored_model.at(params)


def _advice(settings: RoleSettings) -> str:
    return remedy(settings.task.method, settings.training.optimizer.lr)


def _validate(
    exchange: EvaluationExchange, request: Request, report: ScoreReport
) -> None:
    """Require scores of this round."""
    require_known(report.client, exchange.server.client_domains)
    if report.round_number != request.round_number:
        raise refusal(
            report.client,
            "round_number",
            f"scores of round {report.round_number} in round {request.round_number}",
        )


def _bound(declared: Declared, exchange: Any, report: ScoreReport) -> None:
    """Refuse a split with more rows than declared."""
    for split, score in report.scores.items():
        rows = getattr(declared, split)
        declared.check_rows(report.client, f"{split}_total", score.total, rows)


EVALUATE = RequestKind(
    name="evaluate",
    message="evaluate",
    deadline="evaluate",
    parts=(Broadcast,),
    respond=lambda side, broadcast: side.evaluate(broadcast),
    answer_message="metrics",
    answer=ScoreReport,
    validate=_validate,
    bound=_bound,
    part_schema=lambda client: client.scored_schema,
)


@register_exchange("evaluation")
class EvaluationExchange(Exchange):
    """Has the head scored after the rounds in which that is due.

    Attributes
    ----------
    scores : dict from split to dict from domain to Score
        Of the last evaluation.
    reports : dict from client number to ScoreReport
        What clients scored in it on their own rows, unseen clients included.
    """

    KINDS = (EVALUATE,)
    CLIENT = EvaluationClient
    KEYS = keys.KEYS
    objections = staticmethod(keys.objections)
    REVEALS = "each client's scores: rows, hits and the sum of their losses"

    def __init__(self, course):
        super().__init__(course)
        self.scores: dict[str, dict[str, Score]] = {}
        self.reports: dict[int, ScoreReport] = {}

    def round(self, number: int) -> Requests[dict[str, Any]]:
        if not self.server.evaluates(number):
            return {}
        scored = yield from self.score(number)
        self._look_for_divergence(number)
        return scored

    def score(self, number: int) -> Requests[dict[str, Any]]:
        """Score the head (in round 0 the one-shot head); the fields of a record that
        say how well it did."""
        course, server = self.course, self.server
        plan = course.plan
        splits = plan.evaluation.splits
        self.scores = {split: {} for split in splits}
        unseen = None
        if not plan.server_evaluates:
            reports = yield from course.ask(EVALUATE, number, self._to_score(number))
            self.reports = {report.client: report for report in reports}
            for split in splits:
                self.scores[split] = self.by_domain(reports, split, server.participants)
            if server.unseen:
                unseen = self.by_domain(reports, "test", server.unseen)
        for split, domains in course.rows.items():
            for name, rows in domains.items():
                score = self.score_rows(
                    rows.features,
                    rows.labels,
                    number == 0,
                    self._temperature(number) if split == "test" else None,
                )
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
            "probabilities": total.probabilities,
            "worst_client": self._worst_client(),
        }

    def score_rows(
        self,
        features: Tensor,
        labels: Tensor,
        closed_form: bool = False,
        temperature: float | None = None,
    ) -> Score:
        """Score the head of `Server.head_params` on rows [n, D], [n] that the server
        holds; see `evaluate`."""
        server = self.server
        return evaluate(
            server.scored_model,
            server.head_params(closed_form),
            features,
            labels,
            server.settings.training.device,
            _advice(server.settings),
            temperature,
        )

    def _temperature(self, number: int) -> float:
        """What the logits of the head after a round have been divided by."""
        return self.server.temperature if number == 0 else 1.0

    def by_domain(
        self,
        reports: Iterable[ScoreReport],
        split: str = "test",
        among: Collection[int] | None = None,
    ) -> dict[str, Score]:
        """Scores of a split by domain, of the clients `among` (default: all)."""
        domains = self.server.client_domains
        held = {k: d for k, d in domains.items() if among is None or k in among}
        found = {r.client: r.scores[split] for r in reports if split in r.scores}
        return scores_by_domain(found, held)

    def _look_for_divergence(self, number: int) -> None:
        """From the largest weight that each client sent, and the loss on the test rows
        or, where they are not scored, others."""
        totals = {s: sum(d.values(), Score()) for s, d in self.scores.items()}
        split = next(
            (s for s in ("test", "val") if totals.get(s, Score()).total), "train"
        )
        scores = {k: r.scores.get(split, Score()) for k, r in self.reports.items()}
        training = self.course.find(TrainingExchange)
        training.divergence.look(
            number,
            totals.get(split, Score()).mean_loss,
            self.server.trained(self.server.params),
            training.largest_weights,
            {k: s.mean_loss for k, s in scores.items() if s.mean_loss is not None},
        )

    def _worst_client(self) -> WorstClient | None:
        """The client, unseen or not, with the lowest accuracy on its test rows."""
        tests = {k: r.scores.get("test", Score()) for k, r in self.reports.items()}
        known = {k: s.accuracy for k, s in tests.items() if s.accuracy is not None}
        if not known:
            return None
        worst = min(known, key=lambda k: (known[k], k))
        return WorstClient(worst, known[worst], fmean(known.values()))

    def _metrics(self) -> dict[str, float]:
        """FederatedScope's metrics of the last evaluation: averages over clients, or
        those of all rows where the server evaluates."""
        plan = self.course.plan
        each: list[Mapping[str, Score]]
        if plan.server_evaluates:
            each = [{s: sum(d.values(), Score()) for s, d in self.scores.items()}]
        else:
            unseen = set(self.server.unseen)
            each = [r.scores for k, r in self.reports.items() if k not in unseen]
        return average_metrics(each, plan.evaluation.average)

    @property
    def _in_space(self) -> bool:
        """Whether clients make models of their own in a space that they must know."""
        task = self.server.task
        return task.method.personal and task.space.kind != "raw"

    def scored(
        self, number: int, closed_form: bool = False
    ) -> tuple[Broadcast, Broadcast]:
        """What is scored after a round: the model on raw embeddings, and what clients
        make models of their own of; the same, but where that is in a space."""
        asked = self._temperature(number)
        head = head_broadcast(self.server, number, closed_form)
        head = replace(head, temperature=asked)
        if not self._in_space:
            return head, head
        return head, replace(own_broadcast(self.server, number), temperature=asked)

    def of_clients(self, scored: tuple[Broadcast, Broadcast]) -> dict[int, Broadcast]:
        """Which of the two is whose; clients that do not know the space that they train
        in have none."""
        server, (head, own) = self.server, scored
        ready = {*self.course.membership.prepared, *server.unseen}
        return {
            k: head if k in server.unseen else own
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
