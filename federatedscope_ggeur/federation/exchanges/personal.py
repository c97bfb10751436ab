"""Each client makes its own one-shot head and never sends it.

Head and covariance together would reveal the client's class means. The server chooses
one kappa for all clients.

The messages by which clients try all kappas and then make their own heads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from federatedscope_ggeur.models import recast, to_vector
from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant
from federatedscope_ggeur.models.closed_forms.personal import (
    KAPPAS,
    OwnMeans,
    PersonalHeads,
)
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting import PersonalRecord, Privacy, average
from federatedscope_ggeur.settings import Objection, Objections, Section, key, one_of

from .. import wire
from ..demands import Demands
from ..wire.schema import Declared
from .base import ClientSide, Exchange, RequestKind, Requests, register_exchange
from .closed_form.client import ClosedFormClient, sum_losses
from .closed_form.exchange import ClosedFormExchange, bound_rows, require_uploader
from .closed_form.messages import LOSSES, LeaveOneOut, check_losses

#: The temperatures tried for each kappa, as multiples of the one-shot head's.
FACTORS = (0.5, 1.0, 2.0, 4.0)


def _kappa_problem(kappa: int) -> str:
    return "" if kappa <= len(KAPPAS) else f"expected one of the {len(KAPPAS)} kappas"


class PersonalQuery(wire.Payload, kind="personal_query"):
    """Round 0, server to client: the LDA settings of clients' own heads.

    Attributes
    ----------
    shrinkage : float
    standardize : bool
    temperature : float
        The one-shot head's temperature; if `kappa` is chosen, the own head's.
    kappa : int
        The index of the chosen kappa; -1 while the client tries all of them.
    """

    shrinkage: float = wire.number(1.0)
    standardize: bool = wire.flag()
    temperature: float = wire.number()
    kappa: int = wire.integer(
        converts=(lambda kappa: kappa + 1, lambda kappa: kappa - 1),
        problem=_kappa_problem,
        default=-1,
    )

    def check(self, schema: Any) -> None:
        if self.temperature <= 0:
            raise wire.refusal(
                "shrinkage",
                "the shrinkage must lie in 0..1, and the temperature must be positive",
            )


class PersonalLosses(wire.Payload, kind="personal_losses"):
    """Round 0, client to server: the rounded log-loss for each kappa and temperature.

    Attributes
    ----------
    client : int
    rows : int
        The number of left-out rows; 0 if there are fewer than
        ``ggeur.privacy.min_samples``.
    losses : Tensor of shape (kappas, FACTORS), int64
        Sums over the left-out rows, in 1/64 nat.
    """

    client: int = wire.client()
    rows: int = wire.integer()
    losses: Tensor = wire.tensor(torch.int64, (len(KAPPAS), len(FACTORS)), LOSSES)

    def check(self, schema: Any) -> None:
        check_losses(self.rows, self.losses, schema.num_classes)


class PersonalScore(wire.Payload, kind="personal_score"):
    """Round 0, client to server: the scores of the client's own head on test rows.

    Attributes
    ----------
    client : int
    correct, total : int
        Hits and test rows; both are 0 for a client without its own head.
    recall : float
        The mean over classes of the share of correctly classified rows.
    """

    client: int = wire.client()
    correct: int = wire.integer()
    total: int = wire.integer()
    recall: float = wire.number(1.0)

    def check(self, schema: Any) -> None:
        if self.correct > self.total:
            raise wire.refusal(
                "correct",
                f"{self.correct} hits on {self.total} rows; hits cannot exceed rows",
            )


class PersonalKeys(Section):
    """The settings of clients' own heads."""

    PREFIX = "personal."

    head: str = key(
        "none",
        "Each client's own head beside the one-shot head. none: no own heads. means: "
        "LDA whose class means lie between the client's means and the merged means.",
        one_of("none", "means"),
        shared=True,
    )


def objections(run: Demands) -> Objections:
    """The settings that exclude clients' own heads, and those that require them."""
    if run.personal:
        why = "since a client's own head starts from LDA"
        taken = {"closed_form": ["lda", "auto"], "temperature": ["leave_one_out"]}
        yield Objection("personal.head", taken, why)


logger = get_logger(__name__)


class PersonalClient(ClientSide):
    """Tries each kappa on left-out rows, then makes the client's own head."""

    _asked: PersonalQuery | None = None

    def losses(self, query: PersonalQuery) -> PersonalLosses:
        """The log-loss of left-out rows for each kappa and each of four temperatures.

        A restarted client has lost the merged statistics, so it reports no rows.

        Raises
        ------
        MessageError
            The client has answered another such request before.
        """
        if self._asked is not None and self._asked != query:
            raise self.refused(
                "the server asked for these log-losses before, with other settings; "
                "a client answers only once"
            )
        self._asked = query
        number, merged = self.client.number, self.client.merged
        if merged is None:
            nothing = torch.zeros(len(KAPPAS), len(FACTORS), dtype=torch.int64)
            return PersonalLosses(number, 0, nothing)
        heads = self._heads(query, merged)
        parts = list(ClosedFormClient(self.client, self.rows).parts(merged))
        if heads.scale is not None:
            parts = [part.divided(heads.scale) for part in parts]
        by = [query.temperature * factor for factor in FACTORS]
        least = self.client.settings.min_samples
        score = heads.left_out(self._own_means())
        return PersonalLosses(number, *sum_losses(score, parts, by, least)[:2])

    def make(self, query: PersonalQuery) -> PersonalScore:
        """Make the client's own head, store it here, and score it on the test rows."""
        client, merged = self.client, self.client.merged
        test = self.rows.get("test")
        if merged is None:
            return PersonalScore(client.number, 0, 0, 0.0)
        kappa, temperature = KAPPAS[query.kappa], query.temperature
        heads = self._heads(query, merged)
        head = heads.head(self._own_means(), kappa, temperature)
        client.keep_personal(
            recast(head, to_vector(head), client.scored_model, trained=False)
        )
        if test is None or not len(test):
            return PersonalScore(client.number, 0, 0, 0.0)
        right = head.in_chunks(head, test.features).argmax(dim=1) == test.labels
        held = test.labels.unique().tolist()
        recalls = [float(right[test.labels == c].float().mean()) for c in held]
        return PersonalScore(
            client.number, int(right.sum()), len(right), fmean(recalls)
        )

    def _heads(self, query: PersonalQuery, merged: LeaveOneOut) -> PersonalHeads:
        form = ClosedFormClient(self.client, self.rows).form
        lda: Any = getattr(form, "lda", form)
        settings = {
            "shrinkage": query.shrinkage,
            "standardize": query.standardize,
            "priors": lda.priors,
        }
        return merged.once(
            ("personal", *settings.values()),
            lambda: PersonalHeads(LinearDiscriminant(**settings), merged.components),
        )

    def _own_means(self) -> OwnMeans:
        """The client's class means, for the classes whose statistics it has sent."""
        client = self.client
        sent = client.told[client.labels]
        classes = client.task.num_classes
        return OwnMeans.of(client.features[sent], client.labels[sent], classes)


def _bound_score(declared: Declared, exchange: Any, answer: PersonalScore) -> None:
    declared.check_rows(answer.client, "total", answer.total, declared.test)


PERSONAL_LOSSES = RequestKind(
    name="personal_losses",
    message="personal_query",
    deadline="round0",
    parts=(PersonalQuery,),
    respond=lambda side, query: side.losses(query),
    answer_message="personal_losses",
    answer=PersonalLosses,
    validate=require_uploader,
    bound=bound_rows,
)
PERSONAL_HEAD = RequestKind(
    name="personal_head",
    message="personal_head",
    deadline="round0",
    parts=(PersonalQuery,),
    respond=lambda side, query: side.make(query),
    answer_message="personal_score",
    answer=PersonalScore,
    validate=require_uploader,
    bound=_bound_score,
)


@register_exchange("personal")
class PersonalExchange(Exchange):
    """Chooses kappa by all clients' log-losses, then lets clients make their heads."""

    KINDS = (PERSONAL_LOSSES, PERSONAL_HEAD)
    CLIENT = PersonalClient
    SETTINGS = PersonalKeys
    objections = staticmethod(objections)
    REVEALS = "rounded log-losses of each client's own head, and its test accuracy"

    def __init__(self, course):
        super().__init__(course)
        self._record: PersonalRecord | None = None

    @classmethod
    def is_due(cls, demands: Demands) -> bool:
        return demands.closed_form and demands.personal

    @classmethod
    def privacy(cls, before: Privacy, run: Demands) -> Privacy:
        return replace(before, server_sees=[*before.server_sees, cls.REVEALS])

    def complete(self) -> Requests[None]:
        """Choose kappa, and let clients make their heads if the run ends with round 0.

        Clients make no heads if the one-shot head is not calibrated: then they have
        left out no rows.
        """
        closed_form, before = self.course.find(ClosedFormExchange), self.course.spent()
        lda, server = closed_form.lda, self.server
        if lda is None or not closed_form.is_calibrated or server.trains:
            logger.warning(
                "no client has its own head: that needs scores of left-out rows, and "
                "a run whose result is the one-shot head"
            )
            return
        query = PersonalQuery(lda.chosen, lda.standardize, server.temperature)
        asked = self.course.membership.here(sorted(server.merged.rows))
        sent = query.to_bytes()
        answers = yield from self.ask_present(PERSONAL_LOSSES, 0, asked, sent)
        place, factor = best_kappa(answers)
        temperature = server.temperature * factor
        taken = PersonalQuery(lda.chosen, lda.standardize, temperature, place)
        scores = yield from self.ask_present(PERSONAL_HEAD, 0, asked, taken.to_bytes())
        self.apart = self.course.spent() - before
        self._record = self._recorded(taken, scores)

    def record(self) -> dict[str, Any]:
        return {"personal": self._record}

    def _recorded(
        self, taken: PersonalQuery, scores: Sequence[PersonalScore]
    ) -> PersonalRecord:
        domains = self.server.client_domains
        counts: dict[str, list[int]] = {d: [0, 0] for d in domains.values()}
        for score in scores:
            held = counts[domains[score.client]]
            held[0], held[1] = held[0] + score.correct, held[1] + score.total
        accuracy = {d: c / n if n else None for d, (c, n) in counts.items()}
        recalls = [score.recall for score in scores if score.total]
        avg, std = average(accuracy)
        kappa = KAPPAS[taken.kappa]
        return PersonalRecord(
            kappa=None if math.isinf(kappa) else kappa,
            temperature=taken.temperature,
            prior="global",
            accuracy=accuracy,
            avg=avg,
            std=std,
            uniform=fmean(recalls) if recalls else None,
            **self.apart.recorded(),
        )


def best_kappa(answers: Sequence[PersonalLosses]) -> tuple[int, float]:
    """The index of the best kappa, and the factor of its best temperature.

    The best kappa has the smallest log-loss over all clients. In a tie the largest
    kappa wins.
    """
    start = torch.zeros(len(KAPPAS), len(FACTORS), dtype=torch.int64)
    summed: Tensor = sum((answer.losses for answer in answers), start)
    place = int(summed.amin(dim=1).argmin())
    return place, FACTORS[int(summed[place].argmin())]
