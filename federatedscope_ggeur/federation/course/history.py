"""What has happened in a run so far: its records, and the model they are of."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from safetensors.torch import save as save_safetensors
from torch import Tensor

from federatedscope_ggeur.federation.course.checkpoint import Progress
from federatedscope_ggeur.federation.course.checkpointing import Checkpointing
from federatedscope_ggeur.federation.course.coordinator import Coordinator
from federatedscope_ggeur.federation.course.keeping import kept_head
from federatedscope_ggeur.federation.evaluation import METRICS
from federatedscope_ggeur.models import Model
from federatedscope_ggeur.reporting import (
    Capture,
    Chosen,
    Kept,
    Results,
    Round0,
    RoundRecord,
    summarise,
)
from federatedscope_ggeur.reporting.results import Status


class History:
    """The one record of a run, on every engine.

    Parameters
    ----------
    coordinator : Coordinator
    results : Results
        What is known before round 0: settings, domains, clients.
    checkpoints : Checkpointing, optional
        Where the state of the run is kept; see `keep`.
    progress : Progress, optional
        What a restored run has behind it.
    capture : Capture, optional
        What measures the run; by default it is measured from now on.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        results: Results,
        checkpoints: Checkpointing | None = None,
        progress: Progress | None = None,
        capture: Capture | None = None,
    ):
        self._coordinator, self._results = coordinator, results
        self._capture = capture or Capture()
        self.round0: Round0 | None = progress.round0 if progress else None
        self.rounds: list[RoundRecord] = list(progress.rounds) if progress else []
        self.calibrated: RoundRecord | None = None
        self._head = self._left()
        self.checkpoints = checkpoints
        self._note_checkpoint()

    def keep(self, checkpoints: Checkpointing) -> None:
        """Keep the state of the run from now on, if that is not done yet."""
        if self.checkpoints is None:
            self.checkpoints = checkpoints
            self._note_checkpoint()

    def flush(self) -> None:
        """Write the checkpoint of what is over, if it is not written yet.

        Raises
        ------
        ConfigError
            It cannot be written.
        """
        if self.checkpoints is not None:
            self.checkpoints.flush()

    def note(self, record: Round0 | RoundRecord) -> None:
        """Something is over: round 0, a round, or the calibration after the last."""
        if isinstance(record, Round0):
            self.round0 = record
        elif record.method is None:
            self.rounds.append(record)
        else:
            self.calibrated = record
        self._head = self._left()
        # A calibrated head is not trained on: a checkpoint is of before that.
        if self.calibrated is None:
            self._note_checkpoint()

    def _note_checkpoint(self) -> None:
        if self.checkpoints is not None and self.round0 is not None:
            self.checkpoints.note(self._coordinator, self.round0, self.rounds)

    @property
    def stopped_early(self) -> bool:
        """Whether ``early_stop`` ends the run here, before all rounds are over."""
        evaluation = self._coordinator.plan.evaluation
        over = len(self.rounds) == self._coordinator.server.settings.total_rounds
        if over or not self.rounds or not self.rounds[-1].evaluated:
            return False
        values = [value for _, value in self._tracked(evaluation.key)]
        larger = _larger_is_better(evaluation.key)
        return evaluation.early_stop.stops_after(values, larger)

    def _tracked(self, key: str) -> list[tuple[RoundRecord, float]]:
        """The rounds in which the metric `key` is known, and its values."""
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
        best, value = max(tracked, key=lambda found: sign * found[1])
        accuracy = best.accuracy or {}
        return Chosen(best.round, key, value, accuracy, best.avg, best.std)

    @property
    def kept(self) -> Kept | None:
        """Which head the run would leave now; None where there is no choice."""
        settings = self._coordinator.server.settings
        if not settings.keeps_best or self.round0 is None:
            return None
        return kept_head(self.round0, self.rounds)

    @property
    def leaves_closed_form(self) -> bool:
        """Whether the head in closed form is kept of two."""
        return self.kept is not None and self.kept.head == "closed_form"

    def _left(self) -> Tensor:
        return self._coordinator.server.head_params(self.leaves_closed_form)

    def _notes(self) -> list[str]:
        """What a run has to say of itself since its start."""
        solved = self.round0.closed_form if self.round0 else None
        note = (solved.details or {}).get("note") if solved else None
        return [note] if note else []

    @property
    def last_scored(self) -> RoundRecord | None:
        """The record of what was scored last; None before the first."""
        closed_form = self.round0.closed_form if self.round0 else None
        return self.calibrated or (self.rounds[-1] if self.rounds else closed_form)

    def results(self, status: Status = "finished") -> Results:
        """What is known so far; `status` is finished, interrupted or failed."""
        final = summarise(
            self.rounds,
            self.round0,
            self.calibrated,
            kept=self.kept,
            pooled=self._results.pooled,
        )
        head = self.head_bytes()
        digest = None if head is None else hashlib.sha256(head).hexdigest()
        return replace(
            self._results,
            status=status,
            notes=[*self._results.notes, *self._notes()],
            round0=self.round0,
            rounds=list(self.rounds),
            calibrated=self.calibrated,
            final=replace(final, chosen=self._chosen(), head_sha256=digest),
            stopped_early=self.rounds[-1].round if self.stopped_early else None,
            diverged=self._coordinator.divergence.found,
            screening=self._coordinator.screening(),
            provenance=self._capture.provenance(),
            model=self.model(),
        )

    def model(self) -> Model | None:
        """The head that the run would leave now; None where each client has its own."""
        server = self._coordinator.server
        if not server.task.method.federated:
            return None
        return server.scored_model.at(self._head)

    def head_bytes(self) -> bytes | None:
        """`model` as safetensors, with class names; the same bytes for the same model.

        None where every client has a model of its own: its weights do not travel.
        """
        model, names = self.model(), json.dumps(self._results.class_names)
        metadata = {"class_names": names, "encoder": self._results.encoder}
        if model is None:
            return None
        return _with_metadata(save_safetensors(model.state_dict()), metadata)


def _larger_is_better(key: str) -> bool:
    return METRICS[key.partition("_")[2]]


def _with_metadata(data: bytes, metadata: dict[str, str]) -> bytes:
    """Safetensors `data` with `metadata` in its order.

    safetensors' own writer puts several entries into another order in every process.
    """
    end = 8 + int.from_bytes(data[:8], "little")
    header = {"__metadata__": metadata, **json.loads(data[8:end])}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text + data[end:]
