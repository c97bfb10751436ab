"""Records a run for the audit: the decoded messages that each side received."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation.exchanges import Request
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import PREPARE
from federatedscope_ggeur.federation.exchanges.augmentation.messages import (
    Geometry,
    Prototypes,
)
from federatedscope_ggeur.federation.exchanges.base import (
    due_exchanges,
    plugin_exchanges,
)
from federatedscope_ggeur.federation.exchanges.closed_form.client import (
    ClosedFormSettings,
)
from federatedscope_ggeur.federation.exchanges.closed_form.exchange import (
    LEAVE_ONE_OUT,
    LOG_LOSSES,
)
from federatedscope_ggeur.federation.exchanges.closed_form.messages import (
    LeaveOneOut,
    LossQuery,
)
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import (
    EVALUATE,
    VALIDATION_LOSSES,
)
from federatedscope_ggeur.federation.exchanges.space import TOTALS, SpaceBroadcast
from federatedscope_ggeur.federation.exchanges.statistics.exchange import STATISTICS
from federatedscope_ggeur.federation.exchanges.training.exchange import TRAIN
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast
from federatedscope_ggeur.federation.server import Server
from federatedscope_ggeur.geometry import Space
from federatedscope_ggeur.models import LinearHead, MLPHead

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
    recorder = _Recorder(run)
    run.engine.listen, run.engine.packs = recorder.note, True
    for record in run.engine.run():
        if getattr(record, "round", 0) >= rounds:
            break
    return recorder.transcript(run)


def _lied(run: Run) -> Lied | None:
    """Record round 0 of the same run with a client that makes up rows."""
    from federatedscope_ggeur.extras.secure_sums.exchange import SumsClient
    from federatedscope_ggeur.extras.secure_sums.settings import SumSettings

    from .lying import lying

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
    def __init__(self, run: Run):
        self._engine = run.engine
        space = Space.raw(run.engine.server.task.dim)
        self._seen = Transcript(run.settings.role, space=space)

    def note(self, request: Request, replies: Mapping[int, tuple[bytes, ...]]) -> None:
        for k, parts in request.parts.items():
            self._note(request, k, parts, replies.get(k, ()))

    def _note(self, request: Request, k: int, parts, reply) -> None:
        seen, server, kind = self._seen, self._engine.server, request.kind
        schema = server.schema
        decode = self._engine.coordinator.asking.decode
        answer = decode(request, k, reply) if reply else None
        if kind is STATISTICS:
            seen.uploads[k] = answer.statistics
            seen.domains[k] = answer.domain
        elif kind is TOTALS:
            seen.totals[k] = answer
        elif kind in (LEAVE_ONE_OUT, LOG_LOSSES):
            components, *query = parts
            if components and seen.left_out is None:
                seen.left_out = LeaveOneOut.from_bytes(components, schema)
            if query:
                seen.loss_query = LossQuery.from_bytes(query[0], schema)
            answers = seen.log_losses if query else seen.hits
            answers[k] = answer
        elif kind is PREPARE:
            geometry, prototypes, space, *_ = parts
            if geometry:
                seen.geometry = Geometry.from_bytes(geometry, schema)
            if prototypes:
                seen.prototypes[k] = Prototypes.from_bytes(prototypes, schema)
            if space:
                seen.space = SpaceBroadcast.from_bytes(space, schema).space
            seen.replies[k] = answer
        elif kind is TRAIN and len(answer.params):
            seen.trains = True
            before = Broadcast.from_bytes(parts[0], schema)
            if isinstance(server.model, (LinearHead, MLPHead)):
                moved = HeadUpdate(*_split(server.model, answer.params - before.params))
                seen.updates[k] = (*seen.updates.get(k, ()), moved)
                if seen.represent is None:
                    seen.represent = server.model.at(before.params).last_input
        elif kind is EVALUATE and request.round_number == 0:
            model = server.scored_model
            params = Broadcast.from_bytes(parts[0], server.task.schema(model)).params
            if isinstance(model, LinearHead):
                # Without its temperature: an attacker can try temperatures.
                weight, bias = _split(model, params)
                by = server.temperature
                seen.head = weight * by, bias * by

    def transcript(self, run: Run) -> Transcript:
        seen, server = self._seen, self._engine.server
        seen.unread = tuple(_unread(server))
        find = self._engine.coordinator.find
        if has_secure_sums(server.settings.demands):
            from federatedscope_ggeur.extras.secure_sums.exchange import SumsExchange

            summed = find(SumsExchange).summed
            if summed is not None:
                seen.summed, seen.counts = summed.statistics, summed.statistics.counts
        if run.history.round0 and run.history.round0.closed_form is not None:
            form = server.settings.of(ClosedFormSettings).form
            seen.head_classes = tuple(server.merged.release.for_head(form).classes)
        if server.settings.demands.noisy:
            from federatedscope_ggeur.extras.differential_privacy.exchange import (
                NoisyReleaseExchange,
            )

            seen.noisy = find(NoisyReleaseExchange).released
            seen.head_classes = tuple(seen.noisy.classes)
        return seen


#: The requests whose answers attacks read.
_READ = (STATISTICS, TOTALS, LEAVE_ONE_OUT, LOG_LOSSES, PREPARE, TRAIN)
_UNDECLARED = "something that it does not declare"


def _unread(server: Server) -> Iterator[str]:
    """What clients send of training rows that no attack reads, by who asks for it."""
    demands = server.settings.demands
    parts = (demands.method, demands.augmentation) if demands.trains else ()
    for method in filter(None, parts):
        who = f"the {method.chosen_by.replace('_', ' ')} {method.name}"
        if method.pools_data:
            yield f"{who} pools the rows of all clients in one place"
        elif method.sends_of_rows:
            yield f"{who} sends {method.sends or _UNDECLARED}"
    read = set(_READ)
    # Other scores are of rows on which nobody trains.
    read |= set() if "train" in demands.splits else {EVALUATE}
    read |= set() if server.held_share else {VALIDATION_LOSSES}
    plugins = plugin_exchanges(demands)
    for part in due_exchanges(demands):
        hides = part.states(demands.chosen)
        if hides.get("only_totals") or hides.get("noisy"):
            continue  # attacks read its totals
        asked = [kind for kind in part.answered(demands) if kind.answer_message]
        unread = [kind.name for kind in asked if kind not in read]
        if unread:
            of = " of a plugin" if part in plugins else ""
            only = f" (here: {', '.join(unread)})" if len(unread) < len(asked) else ""
            told = part.REVEALS or _UNDECLARED
            yield f"the exchange {part.name}{of}{only} reveals {told}"


def _split(model: LinearHead | MLPHead, params: torch.Tensor):
    """The weights [C, D] and biases [C] of a head's last layer."""
    there = model.at(params)
    linear = there.classifier
    return linear.weight.detach().clone(), linear.bias.detach().clone()
