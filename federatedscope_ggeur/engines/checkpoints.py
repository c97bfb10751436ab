"""Finds the place of a distributed run's checkpoints, and how to continue."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from shlex import quote

from federatedscope_ggeur.cfg_ggeur.run_settings import RunSettings
from federatedscope_ggeur.federation.course.checkpoint import Progress
from federatedscope_ggeur.federation.course.checkpoint_files import DEFAULT_NAME, taken
from federatedscope_ggeur.federation.course.checkpoint_writer import CheckpointWriter
from federatedscope_ggeur.federation.course.checkpointing import Checkpointing
from federatedscope_ggeur.federation.course.client_store import ClientStore
from federatedscope_ggeur.federation.wire.handshake import Handshake
from federatedscope_ggeur.printable import get_logger

logger = get_logger(__name__)

#: What stands before the command that continues a run, by the run's status.
TO_GO_ON = {"interrupted": "to go on", "failed": "to go on once the cause is mended"}
_RESTORE = "federate.restore_from"
#: The program that started this process; empty if Python ran FS's main.
_started_by: list[str] = []
#: The folder in which it was started; empty if that is the present one.
_started_in: list[str] = []


def checkpoint_place(folder: Path, settings: RunSettings) -> str:
    """The path of this process's checkpoints; "" if it writes none.

    It is ``federate.save_to`` or else a file in the run's folder.
    """
    if settings.save_to or settings.checkpoint_every is None:
        return settings.save_to
    # Without FS's main there may be no folder.
    return str(folder / DEFAULT_NAME) if folder.is_dir() else ""


def server_checkpoints(
    folder: Path, settings: RunSettings, handshake: Handshake, progress: Progress | None
) -> Checkpointing | None:
    """Make the object that writes the server's checkpoints; None if it writes none.

    If a method keeps state on clients, they write it after every round. The server then
    also writes its checkpoint after every round, because the two must match.
    """
    place = checkpoint_place(folder, settings)
    if not place:
        return None
    if not settings.save_to and Path(place).exists():
        logger.warning(
            "no checkpoints are written, because '%s' exists from an earlier run", place
        )
        return None
    writer = CheckpointWriter(place, handshake, progress)
    stateful = settings.role.clients_keep_state
    seconds = settings.checkpoint_every or 0.0
    if settings.save_to or stateful:
        seconds = 0.0
    return Checkpointing(writer, seconds, asked=bool(settings.save_to))


def check_client_place(cfg, number: int) -> None:
    """Refuse to overwrite a client's saved state if it belongs to another run.

    Raises
    ------
    ConfigError
    """
    save_to = cfg.federate.save_to
    if save_to and save_to != cfg.federate.restore_from:
        path = ClientStore(save_to, number).path
        if path.exists():
            raise taken(path, f"the state of client {number} in another run")


def note_start(command: Sequence[str]) -> None:
    """Remember the program that started this process, and the present folder."""
    _started_by[:], _started_in[:] = command, [os.getcwd()]


def command_to_go_on(path: str | Path) -> str:
    """The command line that continues this process from the checkpoint at `path`."""
    program, *kept = sys.argv
    while _RESTORE in kept:
        first = kept.index(_RESTORE)
        del kept[first : first + 2]
    command = [*(_started_by or ["python", program]), *kept, _RESTORE, str(path)]
    return from_any_folder(command, *_started_in)


def from_any_folder(command: Sequence[str], folder: str | None = None) -> str:
    """A shell's line that runs the command in `folder`, by default the present one."""
    return f"cd {quote(folder or os.getcwd())} && {' '.join(map(quote, command))}"


def take_sigterm() -> Callable[[], object]:
    """Make SIGTERM end this process like Ctrl-C, so that its files are written.

    This does nothing if SIGTERM has a handler already. It returns a function that
    restores the earlier state.
    """
    free = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if not free or threading.current_thread() is not threading.main_thread():
        return lambda: None
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return partial(signal.signal, signal.SIGTERM, signal.SIG_DFL)
