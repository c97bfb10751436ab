"""Statistics under differential privacy. The clients or the server add the noise."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation.client import Client
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.base import (
    EXCHANGES,
    ClientSide,
    Exchange,
    Request,
    RequestKind,
    Requests,
    RunFacts,
    ask_all,
    refusal,
    register_exchange,
    require_known,
    require_stage,
)
from federatedscope_ggeur.federation.sampling import windows
from federatedscope_ggeur.federation.wire import schema
from federatedscope_ggeur.reporting import NoiseRecord

from . import keys, noise_aware
from .manifest import NoiseKeys
from .noise import SERVER, NoiseSettings, Releaser
from .noisy_release import MOMENTS, RELEASE_STAGES, NoisyStatistics
from .uploads import SESSION_BYTES, ReleaseRequest, ReleaseVector, Uploads

#: A total may come from at most this many rows. Secure sums have the same default.
_MOST_ROWS = 2**20
#: The error's last sentence if a release fails before its end.
SPENT = "Clients that sent a vector have spent their privacy budget for this release"


class ReleaseClient(ClientSide):
    """Answers a session with one vector a stage, and saves each vector first."""

    def __init__(self, client: Client, rows):
        super().__init__(client, rows)
        settings = client.settings.of(NoiseSettings)
        self._releaser = Releaser(
            client.number, client.features, client.labels, settings
        )
        self._uploads = Uploads(settings.ledger, client.number)

    def vector(self, request: ReleaseRequest) -> ReleaseVector:
        """The client's vector of a stage; the same request gets the same bytes.

        Raises
        ------
        MessageError
            The server requests a stage too early, or twice with different contents.
        GGEURError
            The privacy budget of the rows is spent; see `Ledger.charge`.
        """
        contents = hashlib.sha256(request.to_bytes()).hexdigest()
        session, stage = request.session, request.stage
        if stage not in RELEASE_STAGES:
            raise self.refused(f"unknown stage {stage!r:.80}", "stage")
        sent = self._uploads.of(session)
        if stage in sent:
            asked, values = sent[stage]
            if asked != contents:
                problem = f"the second request of '{stage}' differs from the first"
                raise self.refused(problem, "stage")
            return ReleaseVector(self.client.number, session, stage, values)
        if stage != RELEASE_STAGES[len(sent)]:
            following = RELEASE_STAGES[len(sent)]
            problem = f"got a request of '{stage}', but '{following}' comes next"
            raise self.refused(problem, "stage")
        vector = self._releaser.vector(stage, 1, request.centre)
        values = torch.from_numpy(vector)
        with self._uploads.alone():
            self._releaser.charge(session, stage)
            self._uploads.keep(session, {**sent, stage: (contents, values)})
        return ReleaseVector(self.client.number, session, stage, values)


def _validate(
    exchange: NoisyReleaseExchange, request: Request, vector: ReleaseVector
) -> None:
    """Check the session, stage and length of a client's vector."""
    k, stage = vector.client, _stage_of(request.kind)
    require_known(k, exchange.server.participants)
    if vector.session != exchange.session:
        raise refusal(k, "session", "the vector belongs to another session")
    length = exchange.settings.plan.length(stage)
    require_stage(k, vector.stage, stage, "values", vector.values, length)


def _kind(stage: str) -> RequestKind:
    return RequestKind(
        name=f"release_{stage}",
        message=f"release_{stage}_request",
        remembered=0,  # it is beside the ledger
        deadline="round0",
        parts=(ReleaseRequest,),
        respond=lambda side, request: side.vector(request),
        answer_message=f"released_{stage}",
        answer=ReleaseVector,
        validate=_validate,
        largest=lambda e: schema.PLAIN + 8 * e.settings.plan.length(stage),
        patient=True,
        needs_all=True,
        shared_parts=True,
    )


RELEASE_KINDS = {stage: _kind(stage) for stage in RELEASE_STAGES}


def _stage_of(kind: RequestKind) -> str:
    return next(stage for stage, own in RELEASE_KINDS.items() if own is kind)


#: Secure sums, if the extra is there, ask clients in place of this exchange.
_BEFORE = next(one for one in ("secure_sums", "closed_form") if one in EXCHANGES)


@register_exchange("noisy_release", before=_BEFORE)
class NoisyReleaseExchange(Exchange):
    """Every client releases its statistics in two stages; the server adds them up.

    Under secure sums each client adds a share of the noise before it masks its vector.
    Then the secure-sums exchange asks the clients; this exchange only makes the record.

    Attributes
    ----------
    released : NoisyStatistics or None
        After round 0.
    """

    KINDS = tuple(RELEASE_KINDS.values())
    CLIENT = ReleaseClient
    NOT_BY_FOLDER = "dp.epsilon"
    agreed = staticmethod(keys.agreed)
    objections = staticmethod(keys.objections)
    privacy = staticmethod(keys.privacy)
    transform = staticmethod(keys.transform)
    start_note = staticmethod(keys.start_note)
    forecast = staticmethod(keys.forecast)
    REVEALS = "statistics with noise"
    UNSCREENED = (
        "differential privacy: most of a client's upload is noise, so the server "
        "cannot screen uploads. One client can spoil the release"
    )

    def __init__(self, course):
        super().__init__(course)
        self.settings = self.server.settings.of(NoiseSettings)
        self.session = secrets.token_bytes(SESSION_BYTES)
        self._sizes: dict[str, int] = {}
        self.released: NoisyStatistics | None = None
        # Read the file before any client spends its budget.
        read = self.settings.public
        self._public = None if read is None else read()

    @classmethod
    def settings_of(cls, run: RunFacts) -> NoiseSettings:
        return keys.noise_settings(run.demands, run.num_classes, run.dim, run.expected)

    @classmethod
    def states(cls, chosen: Mapping[str, Any]) -> Mapping[str, bool]:
        if not keys.is_chosen(chosen):
            return {}
        return {"noisy": True, "reports_scores": NoiseKeys.of(chosen).report_scores}

    @classmethod
    def is_due(cls, demands: Demands) -> bool:
        return keys.is_chosen(demands.chosen)

    @classmethod
    def answered(cls, demands: Demands) -> tuple[RequestKind, ...]:
        return cls.KINDS if cls.is_due(demands) and not keys.is_shared(demands) else ()

    def begin(self) -> Requests[None]:
        """Ask all connected clients to release their statistics.

        Raises
        ------
        GGEURError
            A client does not answer, or no rows can have such a total.
        """
        course, server = self.course, self.server
        if keys.is_shared(server.settings.demands):
            return
        roster = course.membership.here(server.participants)
        plan = self.settings.plan_of(len(roster))
        centre = torch.zeros(plan.dim, dtype=torch.float64)
        counts = centre
        total = np.zeros(0, dtype=np.int64)
        for stage in RELEASE_STAGES:
            total = yield from self._total(stage, roster, centre)
            if self.settings.noise == SERVER:
                total = total + plan.noise(stage, self.settings.words("server", stage))
            problem = plan.problem(stage, total, _MOST_ROWS)
            if problem:
                raise GGEURError(f"round 0, release of '{stage}': {problem}")
            if stage == MOMENTS:
                counts, centre = plan.centre(total)
        self.take(plan.released(counts, centre, total), roster)

    def take(self, release: NoisyStatistics, roster: Iterable[int]) -> None:
        """Give the server the `release` of the clients in `roster`.

        The server may send all numbers of the release to clients.
        """
        merged = self.server.merged
        self.released = noisy = replace(release, public=self._public)
        hidden = replace(
            merged.release,
            hidden_by="differential privacy",
            solve=partial(noise_aware.solved, noisy),
        )
        merged.take(hidden, dict.fromkeys(roster, 0))

    def _total(self, stage: str, roster: list[int], centre: Tensor) -> Requests[Any]:
        """The sum of all clients' vectors of a stage: int64 [length]."""
        total = np.zeros(self.settings.plan.length(stage), dtype=np.int64)
        data = ReleaseRequest(self.session, stage, centre).to_bytes()
        for numbers in windows(roster, self.course.plan.round0_window):
            kind = RELEASE_KINDS[stage]
            answers = yield from ask_all(
                self.course, kind, data, numbers, self._sizes, SPENT
            )
            for one in answers:
                total += one.values.numpy()
        return total

    def record(self) -> dict[str, Any]:
        server, clients = self.server, len(self.server.merged.rows)
        if self.released is None:
            return {}  # a restored run has its record from the checkpoint
        own, plan = self.settings, self.settings.plan_of(clients)
        known: dict[str, Any] = {
            "noise": NoiseRecord(
                clients=clients,
                tolerated=own.spared(clients) if own.noise == "distributed" else 0,
                dim=plan.dim,
                square=plan.square,
                mu=plan.mu,
                shares=dict(plan.shares),
                deviations={block: plan.total(block) for block in plan.shares},
                epsilon_against={
                    who: None if epsilon == float("inf") else epsilon
                    for who, epsilon in own.observers(clients).items()
                },
                private=own.test_seed is None,
            )
        }
        if not keys.is_shared(server.settings.demands):
            known["statistics_bytes_up"] = self._sizes
        return known
