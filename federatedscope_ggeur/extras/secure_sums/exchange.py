"""Secure sums: masks hide each client's statistics; the server learns the sum."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from federatedscope_ggeur.errors import GGEURError, setting
from federatedscope_ggeur.federation.client import Client
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.base import (
    ClientSide,
    Exchange,
    Request,
    RequestKind,
    Requests,
    RunFacts,
    ask_all,
    refusal,
    register_exchange,
    require_stage,
)
from federatedscope_ggeur.federation.merge import Release
from federatedscope_ggeur.federation.sampling import windows
from federatedscope_ggeur.federation.wire import schema
from federatedscope_ggeur.models import LinearHead, Model
from federatedscope_ggeur.reporting import SumsRecord

from . import keys
from .collector import Collector, Summed
from .messages import MaskedRequest, MaskedVector, SumKey, SumKeysRequest
from .participant import Participant
from .settings import ALL_STAGES, STAGES, SumSettings, summand_of

#: The error's last sentences if an answer to a secure sum is missing.
_UNHARMED = "The server has learnt nothing about any client. Begin the run again"


class SumsClient(ClientSide):
    """Answers a session: first with a key, then with a masked vector in each stage."""

    def __init__(self, client: Client, rows):
        super().__init__(client, rows)
        self.participant = Participant(
            client.number,
            client.features,
            client.labels,
            client.settings.of(SumSettings),
        )


def _validate_key(exchange: SumsExchange, request: Request, key: SumKey) -> None:
    """Require a key from a client of this session's roster."""
    exchange.require_session(key.client, key.session)


def _validate_vector(
    exchange: SumsExchange, request: Request, vector: MaskedVector
) -> None:
    """Require a vector of this session and stage, with the right length."""
    stage = stage_of(request.kind)
    exchange.require_session(vector.client, vector.session)
    words = exchange.collector.words(stage)
    require_stage(vector.client, vector.stage, stage, "masked", vector.masked, words)


SUM_KEYS = RequestKind(
    name="sum_keys",
    message="sum_keys_request",
    remembered=0,  # it is in the journal
    deadline="round0",
    parts=(SumKeysRequest,),
    respond=lambda side, request: side.participant.key(request),
    answer_message="sum_key",
    answer=SumKey,
    validate=_validate_key,
    patient=True,
    needs_all=True,
)


def _stage_kind(stage: str) -> RequestKind:
    return RequestKind(
        name=f"sum_{stage}",
        message=f"sum_{stage}_request",
        remembered=0,
        deadline="round0",
        parts=(MaskedRequest,),
        respond=lambda side, request: side.participant.masked(request),
        answer_message=f"masked_{stage}",
        answer=MaskedVector,
        validate=_validate_vector,
        largest=lambda exchange: schema.PLAIN + 8 * exchange.settings.longest,
        patient=True,
        needs_all=True,
    )


#: The stages of a secure sum, and the kind that asks for each.
SUM_KINDS = {stage: _stage_kind(stage) for stage in ALL_STAGES}


def stage_of(kind: RequestKind) -> str:
    """The stage of a secure sum that a request kind asks for."""
    return next(stage for stage, asking in SUM_KINDS.items() if asking is kind)


@register_exchange("secure_sums", before="closed_form")
class SumsExchange(Exchange):
    """Asks the clients of one roster for keys, then for a masked vector in each stage.

    Every client of the roster must answer in every stage, because the masks of a
    missing client would stay in the sum. The server waits until the deadline for a
    client that has lost its connection.

    Attributes
    ----------
    summed : Summed or None
        The totals; None until the last stage is over.
    """

    KINDS = (SUM_KEYS, *SUM_KINDS.values())
    CLIENT = SumsClient
    NOT_BY_FOLDER = "secure_sums"
    agreed = staticmethod(keys.agreed)
    privacy = staticmethod(keys.privacy)
    objections = staticmethod(keys.objections)
    REVEALS = "sums over all clients"
    UNSCREENED = (
        "secure sums: nobody sees a single client's statistics, so they cannot be "
        "screened. One client can spoil the sum, and nobody can tell which client "
        "it was"
    )

    def __init__(self, course):
        super().__init__(course)
        self.settings = self.server.settings.of(SumSettings)
        self._collector: Collector | None = None
        self._sizes: dict[str, int] = {}
        self.summed: Summed | None = None

    @classmethod
    def is_due(cls, demands: Demands) -> bool:
        return demands.statistics and keys.is_chosen(demands.chosen)

    @classmethod
    def states(cls, chosen: Mapping[str, Any]) -> Mapping[str, bool]:
        return {"only_totals": True} if keys.is_chosen(chosen) else {}

    @classmethod
    def settings_of(cls, run: RunFacts) -> SumSettings:
        return keys.sum_settings(run)

    @staticmethod
    def note_on_head(head: Model | None, class_names: Sequence[str]) -> str:
        """A note on classes without weights: a one-shot head never predicts them."""
        if not isinstance(head, LinearHead):
            return ""
        unknown = (head.classifier.weight == 0).all(dim=1).nonzero().flatten().tolist()
        if not unknown:
            return ""
        names = ", ".join(class_names[c] for c in unknown)
        return (
            f"the head in this folder never predicts {len(unknown)} classes ({names}), "
            "because secure sums keep them back or no client has rows of them; see "
            "docs/secure_sums.md"
        )

    @classmethod
    def answered(cls, demands: Demands) -> tuple[RequestKind, ...]:
        if not cls.is_due(demands):
            return ()
        part = summand_of(demands)
        stages = STAGES if part is None else part.STAGES
        return (SUM_KEYS, *(SUM_KINDS[stage] for stage in stages))

    @classmethod
    def withheld_note(cls, counts: np.ndarray, threshold: int) -> str:
        """A note on classes with fewer rows over all clients than the threshold."""
        totals = counts.sum(axis=0)
        back = (totals > 0) & (totals < threshold)
        if not back.any():
            return ""
        rows = f"{int(totals[back].sum())} of {int(totals.sum())} rows"
        return (
            f"{setting('min_samples')} {threshold} withholds {int(back.sum())} "
            f"classes with {rows} over all clients; a one-shot (closed-form) head "
            "never predicts these classes"
        )

    @property
    def collector(self) -> Collector:
        """The collector of the present session."""
        assert self._collector is not None, "no secure sum has begun"
        return self._collector

    def begin(self) -> Requests[None]:
        """Sum the statistics of all training clients that are connected.

        Raises
        ------
        GGEURError
            There are too few clients, a client was lost, or a total is impossible.
        """
        course, server = self.course, self.server
        roster = course.membership.here(server.participants)
        rows, declared = None, course.membership.declared
        if all(k in declared for k in roster):
            rows = sum(declared[k].train for k in roster)
        collector = self._collector = Collector(self.settings, roster, rows)
        data = collector.keys_request().to_bytes()
        collector.take_keys((yield from self._ask_all(SUM_KEYS, data, roster)))
        for stage in self.settings.stages:
            data = collector.request(stage).to_bytes()
            for numbers in windows(roster, course.plan.round0_window):
                asked = self._ask_all(SUM_KINDS[stage], data, numbers)
                collector.add((yield from asked))
            collector.end(stage)
            if collector.nearly_all:
                raise GGEURError(
                    "round 0, secure sums: one client owns all but a few of the "
                    "rows, and would learn the others' rows from anything made from "
                    "the sums; nothing is sent. Begin again with more clients"
                )
        if collector.totals is not None:
            collector.totals.take(course, roster)
        else:
            self.take(collector.summed(), roster)

    def take(self, summed: Summed, roster: Iterable[int]) -> None:
        """Pass on the summed statistics of the clients in `roster`."""
        self.summed = summed
        shape = self.settings.sends_shape
        release = Release(
            summed.statistics,
            open=summed.released(),
            for_head=lambda form: summed.for_head(form, shape),
            hidden_by="secure sums",
            rounding=len(self.collector.roster) * 2.0**-self.settings.fraction_bits,
            lost=summed.lost,
            finer=f"raise {setting('secure_sums_fraction_bits')}",
        )
        self.server.merged.take(release, dict.fromkeys(roster, 0))

    def require_session(self, client: int, session: bytes) -> None:
        """Refuse an answer that does not belong to this session."""
        if client not in self.collector.roster:
            raise refusal(
                client, "client", "the client is not in the roster of the sum"
            )
        if session != self.collector.session:
            raise refusal(client, "session", "the answer belongs to another session")

    def record(self) -> dict[str, Any]:
        known = {
            "statistics_bytes_up": self._sizes,
            "uploaded_pairs": 0,
            "withheld_pairs": None,
        }
        if self.summed is None:
            return known
        sums = SumsRecord(
            roster=list(self.collector.roster),
            threshold=self.settings.min_samples,
            numbers={s: self.collector.length(s) for s in self.settings.stages},
            classes=self.summed.statistics.classes,
            kept_back=list(self.summed.kept_back),
            withheld_rows=self.summed.unnamed,
        )
        return {**known, "sums": sums}

    def _ask_all(
        self, kind: RequestKind, data: bytes, numbers: Collection[int]
    ) -> Requests[list]:
        """Ask clients of the roster; raise `GGEURError` unless all of them answer."""
        summand = self.settings.summand
        after = _UNHARMED if summand is None else summand.AFTER_LOSS
        return ask_all(self.course, kind, data, numbers, self._sizes, after)
