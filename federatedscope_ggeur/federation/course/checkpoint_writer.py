"""Checkpoints: what a server needs to go on where a run was, written to files.

Two safetensors files: ``<path>.round0`` is written after round 0 (geometry, prototypes,
who is ready), and again when a client more is ready; ``<path>`` holds what a round
leaves (the head, the method's state, the records so far). Both carry the run's id and
belong together. They are read in `checkpoint`; what clients keep is in `client_store`,
and when a checkpoint is due in `checkpointing`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.course.checkpoint import (
    Progress,
    check_free,
    ready_at,
)
from federatedscope_ggeur.federation.course.checkpoint_files import (
    round0_path,
    unwritable,
)
from federatedscope_ggeur.federation.course.coordinator import Coordinator
from federatedscope_ggeur.federation.wire.handshake import Handshake
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.reporting import Finding, Round0, RoundRecord
from federatedscope_ggeur.reporting.json_values import as_json_value


@dataclass(frozen=True)
class Snapshot:
    """What a checkpoint holds of a run after the last of `rounds`, or after round 0."""

    round0: Round0
    rounds: list[RoundRecord]
    progress: dict[str, dict]
    findings: list[Finding]
    tensors: dict[str, Tensor]

    @classmethod
    def of(
        cls, coordinator: Coordinator, round0: Round0, rounds: list[RoundRecord]
    ) -> Snapshot:
        server = coordinator.server
        # The model as others see it, and what training goes on from.
        tensors = wire.under("method", server.method_state)
        tensors.update(params=server.raw_params, trained=server.params)
        # Copies: an optimiser may change its own in the next round.
        own = {name: t.detach().clone() for name, t in tensors.items()}
        progress = {e.name: e.progress() for e in coordinator.exchanges}
        return cls(round0, list(rounds), progress, coordinator.screen.findings, own)


class CheckpointWriter:
    """Writes the checkpoint of one run.

    Parameters
    ----------
    path : path
        ``federate.save_to``, or in the run's folder.
    handshake : Handshake
        Kept in the file; only a run with the same one can go on from it.
    restored : Progress, optional
        Of the run that goes on; it keeps its id, and its round 0 is not written twice.

    Raises
    ------
    ConfigError
        `path` is a folder, cannot have a file, or has one that is not this run's.
    """

    def __init__(
        self, path: str | Path, handshake: Handshake, restored: Progress | None = None
    ):
        self.path, self._handshake = Path(path), handshake
        self._run = restored.run if restored else secrets.token_hex(8)
        check_free(self.path, restored.run if restored else None)
        #: Whose readiness the file of round 0 holds.
        self._ready = ready_at(self.path, restored)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(f"no folder for '{path}': {error.strerror}") from error

    def write(self, snapshot: Snapshot, coordinator: Coordinator) -> None:
        """Write the snapshot, and anew what round 0 left if more clients are ready.

        Raises
        ------
        ConfigError
            A file cannot be written; the earlier checkpoint stays whole.
        """
        records = {
            "round0": as_json_value(snapshot.round0, "round0"),
            "rounds": as_json_value(snapshot.rounds, "rounds"),
            "progress": snapshot.progress,
            "findings": as_json_value(snapshot.findings, "findings"),
        }
        numbers = {"run": self._run, "records": json.dumps(records)}
        numbers = wire.sealed(numbers, snapshot.tensors)
        data = wire.pack("checkpoint", numbers, snapshot.tensors)
        ready = set(coordinator.server.aggregation_weights)
        try:
            if self._ready == ready:
                write_atomically(self.path, data)
            else:
                self._write_both(data, coordinator)
                self._ready = ready
        except (OSError, ConfigError) as error:
            raise unwritable(error) from error

    def _write_both(self, data: bytes, coordinator: Coordinator) -> None:
        """Replace a pair of files only when there is room for both."""
        following = self.path.with_name(self.path.name + ".new")
        try:
            write_atomically(following, data)
            round0 = _round0_bytes(self._run, coordinator, self._handshake)
            write_atomically(round0_path(self.path), round0)
            os.replace(following, self.path)
        finally:
            with contextlib.suppress(OSError):
                following.unlink()


def _round0_bytes(run: str, coordinator: Coordinator, handshake: Handshake) -> bytes:
    server = coordinator.server
    tensors: dict[str, Tensor] = {}
    for exchange in coordinator.exchanges:
        tensors.update(wire.under(exchange.name, exchange.kept()))
    numbers = {
        "run": run,
        "client_domains": {str(k): d for k, d in server.client_domains.items()},
        "ready": [str(k) for k in server.aggregation_weights],
        **handshake.numbers(),
    }
    return wire.pack("round 0", wire.sealed(numbers, tensors), tensors)
