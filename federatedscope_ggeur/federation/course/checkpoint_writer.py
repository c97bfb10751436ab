"""Writes checkpoints, from which a server can continue a run.

A checkpoint has two safetensors files. ``<path>.round0`` holds the geometry, the
prototypes and the numbers of the clients that are ready. It is written after round 0,
and again when another client becomes ready. ``<path>`` holds the head, the method's
state and the records so far. It is written after a round. Both files carry the run's id
and belong together. `checkpoint` reads them. `client_store` keeps the clients' own
state. `checkpointing` decides when a checkpoint is due.
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
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.reporting import Finding, Round0, RoundRecord
from federatedscope_ggeur.reporting.json_values import as_json_value

from .. import wire
from ..wire.handshake import Handshake
from .checkpoint import Progress, check_free, ready_at
from .checkpoint_files import make_folder_of, round0_path, unwritable
from .coordinator import Coordinator

#: Checkpoints hold statistics of single clients.
_OWNER_ALONE = 0o600


@dataclass(frozen=True)
class Snapshot:
    """The content of a checkpoint, after the last of `rounds` or after round 0."""

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
        # the model on raw embeddings, and the one that training continues from
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
        ``federate.save_to``, or a place in the run's folder.
    handshake : Handshake
        Kept in the file. Only a run with the same handshake can continue from the file.
    restored : Progress, optional
        The restored run. It keeps its id. Its file of round 0 is not written again.

    Raises
    ------
    ConfigError
        `path` is a folder, or no possible file name, or a file of another run.
    """

    def __init__(
        self, path: str | Path, handshake: Handshake, restored: Progress | None = None
    ):
        self.path, self._handshake = Path(path), handshake
        self._run = restored.run if restored else secrets.token_hex(8)
        check_free(self.path, restored.run if restored else None)
        #: The clients that the file of round 0 calls ready.
        self._ready = ready_at(self.path, restored)
        try:
            make_folder_of(self.path)
        except OSError as error:
            raise unwritable(
                f"the folder of '{path}' cannot be made: {error.strerror}"
            ) from error

    def write(self, snapshot: Snapshot, coordinator: Coordinator) -> None:
        """Write the snapshot, and the file of round 0 if more clients are ready now.

        Raises
        ------
        ConfigError
            A file cannot be written. The earlier checkpoint stays complete.
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
                write_atomically(self.path, data, _OWNER_ALONE)
            else:
                self._write_both(data, coordinator)
                self._ready = ready
        except (OSError, ConfigError) as error:
            raise unwritable(error) from error

    def _write_both(self, data: bytes, coordinator: Coordinator) -> None:
        """Replace the two files of a checkpoint, or neither if the disk lacks room."""
        following = self.path.with_name(self.path.name + ".new")
        try:
            write_atomically(following, data, _OWNER_ALONE)
            round0 = _round0_bytes(self._run, coordinator, self._handshake)
            write_atomically(round0_path(self.path), round0, _OWNER_ALONE)
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
