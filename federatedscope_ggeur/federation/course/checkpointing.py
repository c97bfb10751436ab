"""When the checkpoint of a run is written: after every round, or now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.course.checkpoint_writer import (
    CheckpointWriter,
    Snapshot,
)
from federatedscope_ggeur.federation.course.coordinator import Coordinator
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting import Round0, RoundRecord

logger = get_logger(__name__)


class Checkpointing:
    """Keeps what a run is at, and writes it when it is due.

    Parameters
    ----------
    writer : CheckpointWriter
    seconds : float
        So many pass between two checkpoints at least; 0: one after every round.
    asked : bool
        Whether somebody named the place. Then a file that cannot be written ends the
        run; else that is said, once, and nothing more is written.
    before : callable (rounds that are over), optional
        Writes what belongs to the checkpoint and stands in other files.

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
        """The run has come to the end of the last of `rounds`, or of round 0.

        Raises
        ------
        ConfigError
            As `flush`.
        """
        self._pending = Snapshot.of(coordinator, round0, rounds), coordinator
        if time.monotonic() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Write what was noted last, if that is not written yet.

        Raises
        ------
        ConfigError
            A file cannot be written; the earlier checkpoint stays whole.
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
            logger.warning("no more checkpoints are written: %s", error)
            self._due = float("inf")
        else:
            self._due = time.monotonic() + self._seconds
        self._pending = None
