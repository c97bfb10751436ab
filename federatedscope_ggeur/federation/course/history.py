"""The record of a run so far, and the model that the run leaves."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import TypeVar

from torch import Tensor

from federatedscope_ggeur.models import (
    Model,
    OwnModels,
    head_bytes,
    own_bytes,
    own_tensors,
)
from federatedscope_ggeur.reporting import (
    Capture,
    Chosen,
    Kept,
    Probabilities,
    Results,
    Round0,
    RoundRecord,
    TemperatureScaling,
    summarise,
)
from federatedscope_ggeur.reporting.records import CalibratedBy
from federatedscope_ggeur.reporting.results import Status

from ..exchanges.base import Requests
from ..exchanges.closed_form.choice import NO_HEAD
from ..exchanges.closed_form.keeping import kept_head
from ..exchanges.evaluation.scores import METRICS
from ..exchanges.training.exchange import head_broadcast
from ..exchanges.training.messages import Broadcast
from .checkpoint import Checkpointing, FinishedPart
from .coordinator import Coordinator, Ending

T = TypeVar("T")


class History:
    """The record of a run; every engine keeps this one.

    Parameters
    ----------
    coordinator : Coordinator
    results : Results
        The facts known before round 0: settings, domains, clients.
    checkpoints : Checkpointing, optional
        Writes the state of the run to disk; see `keep`.
    progress : FinishedPart, optional
        The finished part of a restored run.
    capture : Capture, optional
        Measures the run. By default a new one starts now.

    Attributes
    ----------
    own_params : callable (client number, Broadcast) -> Tensor, or None
        Returns the weights [P + Q], on raw embeddings, that a client of this process
        scores. None if clients keep their models in other processes.
    personal_params : callable (client number) -> Tensor or None, or None
        Returns the weights of a client's own one-shot head in the same way.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        results: Results,
        checkpoints: Checkpointing | None = None,
        progress: FinishedPart | None = None,
        capture: Capture | None = None,
    ):
        if progress is not None:
            results = replace(results, notes=[*results.notes, *progress.notes])
        self._coordinator, self._results = coordinator, results
        self._capture = capture or Capture()
        self.round0: Round0 | None = progress.round0 if progress else None
        self.rounds: list[RoundRecord] = list(progress.rounds) if progress else []
        self.calibrated: RoundRecord | None = None
        self.scaling: TemperatureScaling | None = None
        self._is_over = False
        self.own_params: Callable[[int, Broadcast], Tensor] | None = None
        self.personal_params: Callable[[int], Tensor | None] | None = None
        self._note_left()
        self.checkpoints: Checkpointing | None = None
        if checkpoints is not None:
            self.keep(checkpoints)

    def course(
        self,
        note: Callable[[Round0 | RoundRecord], None],
        end: Callable[[RoundRecord | TemperatureScaling | None], None],
    ) -> Generator[Requests[None], None, None]:
        """The parts of the run that are left, from its present state to its end.

        Each part ends before the next one is taken. At its end, round 0 and each round
        hands its record to `note`, and the step after the last round to `end`.

        Raises
        ------
        ConfigError
            Another run writes its checkpoints at the same place.
        """
        kept, coordinator = self.checkpoints, self._coordinator
        with nullcontext() if kept is None else kept.claimed():
            if self.round0 is None:
                yield _handed(coordinator.round0(), note)
            else:
                yield coordinator.welcome_back()
            for number in range(len(self.rounds) + 1, self.total + 1):
                if self.stopped_early:
                    break
                yield _handed(coordinator.round(number), note)
            if self.awaits_end:
                yield _handed(coordinator.after_rounds(), end)

    def keep(self, checkpoints: Checkpointing) -> None:
        """Write checkpoints from now on, unless the run does so already.

        Raises
        ------
        ConfigError
            Another run writes its checkpoints at the same place.
        """
        if self.checkpoints is None:
            self.checkpoints = checkpoints
            with checkpoints.claimed():
                self._note_checkpoint()

    def flush(self) -> None:
        """Write the checkpoint of the finished rounds, unless this was done before.

        Raises
        ------
        ConfigError
            The checkpoint cannot be written.
        """
        if self.checkpoints is not None:
            self.checkpoints.flush()

    @property
    def total(self) -> int:
        """The number of rounds of training that the run will have."""
        return self._coordinator.server.rounds

    @property
    def awaits_end(self) -> bool:
        """Whether a calibration or a temperature is due after the last round."""
        demands = self._coordinator.server.settings.demands
        # Rows that training did not see choose between the halves of a mean.
        averages = self._coordinator.server.averaging is not None
        may_change = averages or not self.leaves_closed_form
        scales = demands.scales_trained and may_change
        is_due = demands.calibrates or (scales and bool(self.rounds))
        return is_due and not self._is_over

    def end(self, record: RoundRecord | TemperatureScaling | None) -> None:
        """Add the result of `Coordinator.after_rounds`."""
        self._is_over = True
        if isinstance(record, RoundRecord):
            self.note(record)
        elif record is not None:
            self.scaling = record
            self._note_left()

    def note(self, record: Round0 | RoundRecord) -> None:
        """Add the record of round 0, of a round, or of the calibration."""
        if isinstance(record, Round0):
            self.round0 = record
        elif record.method is None:
            self.rounds.append(record)
        else:
            self.calibrated = record
        self._note_left()
        # A checkpoint holds the head before calibration: no round trains a calibrated
        # one.
        if self.calibrated is None:
            self._note_checkpoint()

    def _note_checkpoint(self) -> None:
        if self.checkpoints is not None and self.round0 is not None:
            self.checkpoints.note(self._coordinator, self.round0, self.rounds)

    @property
    def stopped_early(self) -> bool:
        """Whether ``early_stop`` ends the run before all rounds are over."""
        evaluation = self._coordinator.plan.evaluation
        over = len(self.rounds) == self._coordinator.server.settings.demands.rounds
        if over or not self.rounds or not self.rounds[-1].evaluated:
            return False
        values = [value for _, value in self._tracked(evaluation.key)]
        larger = _larger_is_better(evaluation.key)
        return evaluation.early_stop.stops_after(values, larger)

    def _tracked(self, key: str) -> list[tuple[RoundRecord, float]]:
        """The rounds that have a value of the metric `key`, each with the value."""
        return [
            (record, record.metrics[key])
            for record in self.rounds
            if record.metrics is not None and key in record.metrics
        ]

    def _chosen(self) -> Chosen | None:
        """The round that validation chooses."""
        key = self._coordinator.plan.evaluation.validation_key
        tracked = self._tracked(key)
        if not tracked:
            return None
        sign = 1 if _larger_is_better(key) else -1
        best, value = max(tracked, key=lambda pair: sign * pair[1])
        accuracy = best.accuracy or {}
        return Chosen(best.round, key, value, accuracy, best.avg, best.std)

    @property
    def kept(self) -> Kept | None:
        """The head that the run would leave now; None if there is only one."""
        demands = self._coordinator.server.settings.demands
        if not demands.keeps_best or self.round0 is None:
            return None
        return kept_head(self.round0, self.rounds, self._share)

    @property
    def _share(self) -> float | None:
        return self.calibrated.share if self.calibrated else None

    @property
    def leaves_closed_form(self) -> bool:
        """Whether the run would leave the one-shot head, not the trained one."""
        return self.kept is not None and self.kept.head == "closed_form"

    def _note_left(self) -> None:
        """Copy the weights that the run would leave now.

        The copy is needed because a round that is cut off changes the server's weights.
        """
        coordinator, last = self._coordinator, self.last_scored
        self._head = coordinator.server.head_params(self.leaves_closed_form)
        self._scored: tuple[Broadcast, Broadcast] | None = None
        self._own: OwnModels | None = None
        if coordinator.server.task.method.personal and last is not None:
            self._scored = coordinator.evaluation.scored(last.round)

    @property
    def leaves_own(self) -> bool:
        """Whether each client scores and keeps a model of its own."""
        coordinator = self._coordinator
        return coordinator.plan.leaves_own(coordinator.server.task.method)

    def finals(self) -> dict[int, Broadcast]:
        """The weights that each client receives at the end.

        These are the model itself, or the shared part of the client's own model.
        """
        server, last = self._coordinator.server, self.last_scored
        assert last is not None, "a run that is over has scored something"
        head = head_broadcast(server, last.round, self.leaves_closed_form)
        own: dict[int, Broadcast] = {}
        if self._scored is not None:
            own = self._coordinator.evaluation.of_clients(self._scored)
        return {k: own.get(k, head) for k in server.client_domains}

    def ending(self, shares: bool) -> Ending:
        """The last message to each client, sent beside its weights of `finals`."""
        return Ending.of(self.results().final, shares)

    def _notes(self) -> list[str]:
        """The notes that were added after the start of the run."""
        solved = self.round0.closed_form if self.round0 else None
        if self.kept is not None and solved is None:
            return [NO_HEAD]
        note = (solved.details or {}).get("note") if solved else None
        return [note] if note else []

    @property
    def last_scored(self) -> RoundRecord | None:
        """The record of the last evaluation; None before the first."""
        closed_form = self.round0.closed_form if self.round0 else None
        return self.calibrated or (self.rounds[-1] if self.rounds else closed_form)

    def _begun(self) -> Results:
        """The results known before round 0, with the present domains of clients."""
        begun, now = self._results, self._coordinator.server.client_domains
        before = {info.domain for info in begun.clients}
        clients = [
            replace(info, domain=now.get(info.number, info.domain))
            for info in begun.clients
        ]
        # A server that scores rows of its own has their domains, whatever clients say.
        if clients == begun.clients or self._coordinator.plan.server_evaluates:
            return replace(begun, clients=clients)
        others = [domain for domain in begun.domains if domain not in before]
        held = dict.fromkeys(info.domain for info in clients)
        return replace(begun, clients=clients, domains=[*held, *others])

    def results(self, status: Status = "finished") -> Results:
        """The results so far; `status` is finished, interrupted or failed."""
        final = summarise(
            self.rounds,
            self.round0,
            self.calibrated,
            kept=self.kept,
            pooled=self._results.pooled,
            scaling=self.scaling,
        )
        head, left = self.head_bytes(), self._left_record
        final = replace(
            final,
            chosen=self._chosen(),
            scored="clients" if self.leaves_own else "global",
            head_sha256=None if head is None else hashlib.sha256(head).hexdigest(),
            probabilities=self._probabilities(final.head),
            calibrated_by=self._calibrated_by(final.head),
            worst_client=left.worst_client if left else None,
            client_accuracy=self._client_accuracy(),
        )
        begun = self._begun()
        return replace(
            begun,
            status=status,
            notes=[*begun.notes, *self._notes()],
            round0=self.round0,
            rounds=list(self.rounds),
            calibrated=self.calibrated,
            temperature_scaling=self.scaling,
            final=final,
            stopped_early=self.rounds[-1].round if self.stopped_early else None,
            diverged=self._coordinator.diverged,
            screening=self._coordinator.screening,
            provenance=self._capture.provenance(),
            model=self.model(),
            own_models=self.own_models(),
        )

    @property
    def _left_record(self) -> RoundRecord | None:
        """The record of the head that the run would leave."""
        if self.leaves_closed_form and self.round0 is not None:
            return self.round0.closed_form
        return self.last_scored

    def _probabilities(self, head: str) -> Probabilities | None:
        """How well the probabilities of a `head` agree with its hits."""
        if head == "trained" and self.scaling is not None:
            return self.scaling.probabilities
        left = self._left_record
        return left.probabilities if left else None

    def _client_accuracy(self) -> dict[str, float] | None:
        """The accuracy of the final head on each client's rows."""
        left = self._left_record
        if left is None or left.method is not None:
            return left.client_accuracy if left else None
        return self._coordinator.evaluation.client_accuracy() or None

    def _calibrated_by(self, head: str) -> CalibratedBy | None:
        """The source of a head's temperature; None if the head has none."""
        scaled = head == "trained" and self.scaling is not None
        if scaled or (head == "calibrated" and self._share is not None):
            held_out = self._coordinator.server.held_share > 0
            return "held_out" if held_out else "validation"
        if self.kept is not None and self.kept.head == "average":
            return None
        solved = self.round0.closed_form if self.round0 else None
        details = (solved and solved.details) or {}
        if "temperature" not in details:
            return None
        if head == "closed_form":
            return details.get("temperature_by", "leave_one_out")
        return "start" if head == "trained" else None

    def model(self) -> Model | None:
        """The head that the run would leave now; None if every client has its own."""
        server = self._coordinator.server
        if not server.task.method.federated:
            return None
        return server.scored_model.at(self._head)

    def head_bytes(self) -> bytes | None:
        """The run's `model` and its class names as safetensors.

        Equal models give equal bytes. None if every client has a model of its own,
        whose weights do not travel.
        """
        model = self.model()
        if model is None:
            return None
        return head_bytes(model, self._results.class_names, self._results.encoder)

    def own_models(self) -> OwnModels | None:
        """The models that clients of this process would leave now, or None."""
        if self.round0 is not None and self.round0.personal is not None:
            return self._personal_models()
        scored, own_params = self._scored, self.own_params
        if not self.leaves_own or scored is None or own_params is None:
            return None
        if self._own is None:
            shared, model = self.model(), self._coordinator.server.scored_model
            common = None if shared is None else shared.state_dict()
            sent = self._coordinator.evaluation.of_clients(scored)
            tensors = {
                k: own_tensors(model, own_params(k, broadcast), common)
                for k, broadcast in sent.items()
            }
            self._own = OwnModels(shared or model, tensors, shared is not None)
        return self._own

    def _personal_models(self) -> OwnModels | None:
        server, shared = self._coordinator.server, self.model()
        if self.personal_params is None or shared is None:
            return None
        tensors = {}
        for k in server.client_domains:
            if (params := self.personal_params(k)) is not None:
                # It may have fewer components than the model of all.
                tensors[k] = own_tensors(server.scored_model.at(params), params, None)
        return OwnModels(shared, tensors, shared=True) if tensors else None

    def own_bytes(self) -> Iterator[tuple[int, bytes]]:
        """Yield each client's number with its own model as safetensors."""
        own, head = self.own_models(), self.head_bytes()
        if own is None:
            return
        domains = self._coordinator.server.client_domains
        about = self._results.class_names, self._results.encoder
        for k, tensors in own.tensors.items():
            yield k, own_bytes(tensors, k, domains[k], head, *about)


def _handed(requests: Requests[T], take: Callable[[T], None]) -> Requests[None]:
    """The same requests; their result goes to `take`."""
    take((yield from requests))


def _larger_is_better(key: str) -> bool:
    return METRICS[key.partition("_")[2]]
