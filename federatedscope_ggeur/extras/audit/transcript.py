"""Records a run for the audit: the decoded messages that each side received."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from federatedscope_ggeur.engines.embedded import EmbeddedEngine
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation.exchanges import Request
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import PREPARE
from federatedscope_ggeur.federation.exchanges.augmentation.messages import (
    Geometry,
    Prototypes,
)
from federatedscope_ggeur.federation.exchanges.closed_form.choice import (
    LeaveOneOut,
    LossQuery,
)
from federatedscope_ggeur.federation.exchanges.closed_form.exchange import (
    LEAVE_ONE_OUT,
    LOG_LOSSES,
    ClosedFormSettings,
)
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import EVALUATE
from federatedscope_ggeur.federation.exchanges.space import SpaceBroadcast
from federatedscope_ggeur.federation.exchanges.statistics.exchange import STATISTICS
from federatedscope_ggeur.federation.exchanges.training.exchange import TRAIN
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast
from federatedscope_ggeur.geometry import Space
from federatedscope_ggeur.models import LinearHead

from .base import HeadUpdate, Lied, Transcript, Truth, has_secure_sums
from .liar import a_claim, spoken_of

#: The number of rounds whose updates the audit attacks.
ROUNDS = 3


def recorded(run: Run) -> Transcript:
    """Run round 0 and the first rounds of `run`, and record the messages.

    No files are written. With secure sums and no noise, round 0 is run again with a
    client that lies.

    Raises
    ------
    GGEURError
        An error stops the run before these rounds are over.
    """
    seen = _recorded(run, ROUNDS)
    demands = run.settings.demands
    if not has_secure_sums(demands) or demands.noisy:
        return seen
    return replace(seen, lied=_lied(run))


def _recorded(run: Run, rounds: int) -> Transcript:
    recorder = _Recorder(run.engine)
    run.engine.listen, run.engine.packs = recorder.note, True
    for record in run.engine.run():
        if getattr(record, "round", 0) >= rounds:
            break
    return recorder.transcript(run)


def _lied(run: Run) -> Lied | None:
    """Record round 0 of the same run with a client that makes up rows."""
    from federatedscope_ggeur.extras.secure_sums.exchange import SumsClient
    from federatedscope_ggeur.extras.secure_sums.settings import SumSettings

    from .liar import lying

    sums = run.settings.role.of(SumSettings)
    claim = a_claim(truth_of(run), sums)
    if claim is None:
        return None
    clients = [
        replace(held, train=held.train.select(spoken_of(claim, held.train.labels)))
        if held.number == claim.liar
        else held
        for held in run.data.clients
    ]
    again = Run(run.cfg, replace(run.data, clients=clients))
    again.engine.workers = 1
    client, own = again.engine.clients[claim.liar], replace(sums, store="")
    liar = lying(client.number, client.features, client.labels, own, claim)
    again.engine.side(claim.liar, SumsClient).participant = liar
    try:
        return Lied(claim, _recorded(again, 0))
    except GGEURError as error:
        return Lied(claim, None, str(error))


def truth_of(run: Run) -> Truth:
    """The training rows of the clients of `run`, and test rows as non-members.

    Raises
    ------
    GGEURError
        The run has no test rows.
    """
    data, trains = run.data, set(run.held.numbers)
    held = {c.number: c.train for c in data.clients if c.number in trains}
    tests = [c.test for c in data.clients] + [d.test for d in data.unseen]
    tests = [rows for rows in tests if len(rows)]
    if not tests:
        raise GGEURError(
            "audit: there are no test rows, which are needed to compare members "
            "with non-members; set aside some by data.splits"
        )
    others = tuple(
        torch.cat([getattr(t, name) for t in tests]) for name in ("features", "labels")
    )
    clients = {k: (rows.features, rows.labels) for k, rows in held.items()}
    return Truth(clients, (others[0], others[1]), data.num_classes, run.cfg.seed)


class _Recorder:
    def __init__(self, engine: EmbeddedEngine):
        self._schema = engine.server.schema
        self._engine, self.trains = engine, False
        self.uploads: dict = {}
        self.prototypes: dict = {}
        self.replies: dict = {}
        self.updates: dict = {}
        self.domains: dict = {}
        self.hits: dict = {}
        self.log_losses: dict = {}
        self.left_out = self.loss_query = None
        self.geometry = self.head = None
        self.space = Space.raw(engine.server.task.dim)

    def note(self, request: Request, replies: Mapping[int, tuple[bytes, ...]]) -> None:
        for k, parts in request.parts.items():
            self._note(request, k, parts, replies.get(k, ()))

    def _note(self, request: Request, k: int, parts, reply) -> None:
        schema, server, kind = self._schema, self._engine.server, request.kind
        decode = self._engine.coordinator.asking.decode
        answer = decode(request, k, reply) if reply else None
        if kind is STATISTICS:
            self.uploads[k] = answer.statistics
            self.domains[k] = answer.domain
        elif kind in (LEAVE_ONE_OUT, LOG_LOSSES):
            components, *query = parts
            if components and self.left_out is None:
                self.left_out = LeaveOneOut.from_bytes(components, schema)
            if query:
                self.loss_query = LossQuery.from_bytes(query[0], schema)
            answers = self.log_losses if query else self.hits
            answers[k] = answer
        elif kind is PREPARE:
            geometry, prototypes, space = parts
            if geometry:
                self.geometry = Geometry.from_bytes(geometry, schema)
            if prototypes:
                self.prototypes[k] = Prototypes.from_bytes(prototypes, schema)
            if space:
                self.space = SpaceBroadcast.from_bytes(space, schema).space
            self.replies[k] = answer
        elif kind is TRAIN and len(answer.params):
            self.trains = True
            before = Broadcast.from_bytes(parts[0], schema)
            if isinstance(server.model, LinearHead):
                moved = HeadUpdate(*_split(server.model, answer.params - before.params))
                self.updates[k] = (*self.updates.get(k, ()), moved)
        elif kind is EVALUATE and request.round_number == 0:
            model = server.scored_model
            params = Broadcast.from_bytes(parts[0], server.task.schema(model)).params
            if isinstance(model, LinearHead):
                self.head = _split(model, params)

    def transcript(self, run: Run) -> Transcript:
        server = self._engine.server
        release, summed = server.merged.release, None
        if has_secure_sums(server.settings.demands):
            from federatedscope_ggeur.extras.secure_sums.exchange import SumsExchange

            summed = self._engine.coordinator.find(SumsExchange).summed
        closed = run.history.round0.closed_form if run.history.round0 else None
        classes: tuple[int, ...] = ()
        if closed is not None:
            form = server.settings.of(ClosedFormSettings).form
            classes = tuple(release.for_head(form).classes)
        noisy = None
        if server.settings.demands.noisy:
            from federatedscope_ggeur.extras.differential_privacy.exchange import (
                NoisyReleaseExchange,
            )

            noisy = self._engine.coordinator.find(NoisyReleaseExchange).released
            classes = tuple(noisy.classes)
        return Transcript(
            run.settings.role,
            self.uploads,
            None if summed is None else summed.statistics,
            None if summed is None else summed.statistics.counts,
            self.geometry,
            self.prototypes,
            self.space,
            self.replies,
            self.trains,
            self.updates,
            self.head,
            classes,
            self.left_out,
            self.hits,
            self.loss_query,
            self.log_losses,
            self.domains,
            noisy=noisy,
        )


def _split(model: LinearHead, params: torch.Tensor):
    """Split a linear head's vector into weights [C, D] and biases [C]."""
    there = model.at(params)
    linear = there.classifier
    return linear.weight.detach().clone(), linear.bias.detach().clone()
