"""Decides when a checkpoint is written: after each round, or at a least interval."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting import Round0, RoundRecord

from .checkpoint_writer import CheckpointWriter, Snapshot
from .coordinator import Coordinator

logger = get_logger(__name__)


class Checkpointing:
    """Holds the latest state of a run, and writes this state when it is due.

    Parameters
    ----------
    writer : CheckpointWriter
    seconds : float
        The least time between two checkpoints; 0 writes one after every round.
    asked : bool
        Whether the user named the file. If so, the run ends with an error when the file
        cannot be written. If not, one warning is logged and no more checkpoints are
        written.
    before : callable (rounds that are over), optional
        Called first. It writes the parts of the checkpoint that are in other files.

    Attributes
    ----------
    path : Path
    """

    def __init__(
        self,
        writer: CheckpointWriter,
        seconds: float = 0.0,
        asked: bool = True,
        before: Callable[[int], None] = lambda rounds: None,
    ):
        self._writer, self._seconds, self._asked = writer, seconds, asked
        self._before = before
        self._due = float("-inf")
        self._pending: tuple[Snapshot, Coordinator] | None = None

    @property
    def path(self) -> Path:
        return self._writer.path

    def note(
        self, coordinator: Coordinator, round0: Round0, rounds: list[RoundRecord]
    ) -> None:
        """Take the state after the newest round; write it if a checkpoint is due.

        Raises
        ------
        ConfigError
            A file cannot be written; see `flush`.
        """
        self._pending = Snapshot.of(coordinator, round0, rounds), coordinator
        if time.monotonic() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Write the latest state, unless this was done before.

        Raises
        ------
        ConfigError
            A file cannot be written. The earlier checkpoint stays complete.
        """
        if self._pending is None:
            return
        snapshot, coordinator = self._pending
        try:
            self._before(len(snapshot.rounds))
            self._writer.write(snapshot, coordinator)
        except ConfigError as error:
            if self._asked:
                raise
            logger.warning("this run writes no more checkpoints: %s", error)
            self._due = float("inf")
        else:
            self._due = time.monotonic() + self._seconds
        self._pending = None
