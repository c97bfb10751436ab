"""Writes and reads checkpoints, from which a server can continue a run.

A checkpoint has two safetensors files. ``<path>.round0`` holds the geometry, the
prototypes and the numbers of the clients that are ready. It is written after round 0,
and again when another client becomes ready. ``<path>`` holds the head, the method's
state and the records so far. It is written after a round. Both files carry the run's id
and belong together. `client_handler` keeps the clients' own state.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, MessageError, setting
from federatedscope_ggeur.files import read_regular, write_atomically
from federatedscope_ggeur.lock import AtWork, locked
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting import Finding, Round0, RoundRecord
from federatedscope_ggeur.reporting.json_values import (
    as_json_value,
    from_json_value,
    parse_json,
)
from federatedscope_ggeur.reporting.run_files import OF_CLIENTS, PRIVATE, ROUND0

from .. import wire
from ..exchanges.training.exchange import RoundSettings
from ..server import Server
from ..wire.handshake import Handshake
from .coordinator import Coordinator

logger = get_logger(__name__)


def warn_of_private(folder: Path) -> None:
    """Log what of a run's folder is not to be passed on."""
    if (folder / PRIVATE).is_dir():
        logger.info(
            "do not pass on %s/, which holds statistics of single clients, nor log.txt",
            PRIVATE,
        )


def make_folder_of(path: Path) -> None:
    """Make the folder of a checkpoint; raises `OSError`."""
    is_private = path.parent.name == PRIVATE
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700 if is_private else 0o777, exist_ok=True)


def round0_path(path: Path) -> Path:
    """The path of the file of round 0, beside the checkpoint at `path`."""
    return path.with_name(path.name + ROUND0)


def client_path(path: str | Path, number: int) -> Path:
    """The path of the file of a client's own state, beside the checkpoint at `path`."""
    return Path(f"{path}{OF_CLIENTS}") / f"client_{number:04d}.safetensors"


def check_name(path: Path) -> None:
    """Refuse a path that is a folder or cannot be a file name.

    Raises
    ------
    ConfigError
    """
    try:
        is_folder = path.is_dir()
        # the longest name that will be needed
        round0_path(path).with_name(f"{path.name}.round0.new").exists()
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        raise unwritable(
            f"'{path}' cannot be used as a file name: {problem}"
        ) from error
    for place in (path, round0_path(path), client_path(path, 0).parent):
        if place.is_symlink():
            problem = f"'{place}' is a link; name a file that is none"
            raise ConfigError(f"{setting('save_to')}: {problem}")
    if is_folder:
        example = path / "checkpoint"
        problem = f"'{path}' is a folder; name a file, such as '{example}'"
        raise ConfigError(f"{setting('save_to')}: {problem}")


def unwritable(problem: object) -> ConfigError:
    """An error that says that a checkpoint cannot be written."""
    where = setting("save_to")
    return ConfigError(f"{where}: {problem}; free disk space, or name another file")


def taken(path: Path, what: str) -> ConfigError:
    """An error that says that `path` is a file of another run."""
    return ConfigError(
        f"{setting('save_to')}: '{path}' is {what}, and a run never overwrites it. "
        f"Name another file, or set {setting('restore_from')} to continue that run"
    )


def refusal(path: str | Path, problem: str) -> ConfigError:
    """An error that says that a run cannot continue from the file `path`."""
    return ConfigError(f"{setting('restore_from')}: '{path}' cannot be used: {problem}")


@dataclass(frozen=True)
class FinishedPart:
    """The finished part of a restored run.

    Attributes
    ----------
    round0 : Round0
    rounds : list of RoundRecord
    run : str
        The id of the run.
    data : str
        The hash of all rows; "" if the run did not know it.
    notes : list of str
        Which rounds were trained with other settings than those that follow.
    """

    round0: Round0
    rounds: list[RoundRecord]
    run: str
    data: str = ""
    notes: list[str] = field(default_factory=list)

    def require_data(self, path: str | Path, data: str) -> None:
        """Refuse to go on from the checkpoint at `path` on other rows.

        Raises
        ------
        ConfigError
        """
        if self.data and data and self.data != data:
            raise refusal(
                path,
                "its run had other rows, or divided them otherwise into training, "
                "validation and test rows; go on with the same ones",
            )


def restore(
    path: str | Path, coordinator: Coordinator, handshake: Handshake
) -> FinishedPart:
    """Set `coordinator` to the state of the checkpoint at `path`.

    Parameters
    ----------
    path : path
        ``federate.restore_from``: a checkpoint of this program.
    coordinator : Coordinator
        The coordinator to set. It must have the clients and settings of the checkpoint.
    handshake : Handshake

    Raises
    ------
    ConfigError
        The file is missing, broken, or of another run. The error says why.
    """
    path = Path(path)
    try:
        return _restore(path, _read(path), coordinator, handshake)
    except ConfigError:
        raise
    # The file was changed. MessageError and DataError are ValueErrors.
    except (ValueError, KeyError) as error:
        raise refusal(path, str(error)) from error


def _restore(
    path: Path, data: bytes, coordinator: Coordinator, handshake: Handshake
) -> FinishedPart:
    server = coordinator.server
    progress = _unpack(data, "checkpoint", path)
    started = _round0_at(path)
    if progress.text("run") != started.text("run"):
        raise refusal(
            path,
            f"'{round0_path(path)}' belongs to another run; put the file of the same "
            "run beside the checkpoint",
        )
    _check_same(path, started, server, handshake)
    size = len(server.params) if server.model.fixed_size else None
    params = progress.tensor("trained", torch.float32, (size,))
    records = _records(progress)
    round0 = from_json_value(Round0, records["round0"], "round0")
    rounds = from_json_value(list[RoundRecord], records["rounds"], "rounds")
    known = from_json_value(list[str], records.get("notes", []), "notes")
    before = from_json_value(dict[str, str], records.get("training", {}), "training")
    done = FinishedPart(
        round0,
        rounds,
        progress.text("run"),
        started.text("data") if started.has("data") else "",
        [*known, *_changed(before, _training(server), len(rounds))],
    )
    findings = records.get("findings", [])  # older files have none
    coordinator.screen.load(from_json_value(list[Finding], findings, "findings"))
    last, wanted = len(done.rounds), server.settings.demands.rounds
    if last > wanted:
        problem = (
            f"the checkpoint is of round {last}, but {setting('total_rounds')} is "
            f"{wanted}"
        )
        raise refusal(path, f"{problem}; set it to {last} or more")
    left = from_json_value(dict[str, dict[str, Any]], records["progress"], "progress")
    for exchange in coordinator.exchanges:
        exchange.resume(started.tensors_under(exchange.name))
        exchange.resume_progress(left.get(exchange.name, {}))
    server.params = params
    server.begin_training(progress.tensors_under("method"))
    logger.info(
        "this run goes on after round %d of the run of the checkpoint '%s'", last, path
    )
    return done


def _training(server: Server) -> dict[str, str]:
    """What decides how rounds train, as texts by key."""
    drawn = server.settings.of(RoundSettings).sample_client_num
    own = server.settings.training.as_texts()
    return {**own, "federate.sample_client_num": str(drawn)}


def _changed(
    before: Mapping[str, str], now: Mapping[str, str], rounds: int
) -> list[str]:
    """A note on settings of training that are others than `before`, if there are any.

    `before` is empty for older files.
    """
    others = [
        f"{name} {before.get(name, 'not set')}"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    ]
    if not before or not rounds or not others:
        return []
    note = f"the first {rounds} rounds were trained with {', '.join(others)}"
    logger.warning("%s", note)
    return [note]


def checkpoint_client_domains(path: str | Path) -> dict[int, str]:
    """The domain of each client, by number, from the checkpoint at `path`.

    Raises `ConfigError` if the file is missing or broken.
    """
    domains = _round0_at(Path(path)).mapping("client_domains")
    return {int(k): domain for k, domain in domains.items()}


def _records(progress: wire.Message) -> dict[str, Any]:
    values = parse_json(progress.text("records"))
    return from_json_value(dict[str, Any], values, "records")


def check_place(save_to: str, restore_from: str) -> None:
    """Refuse a path `save_to` where the run could not write a checkpoint.

    Raises
    ------
    ConfigError
        `save_to` is a folder, or no possible file name, or a file that does not belong
        to the run of `restore_from`.
    """
    if save_to:
        path = Path(save_to)
        check_free(path, _run_at(Path(restore_from)) if restore_from else None)


def check_free(path: Path, run: str | None) -> None:
    check_name(path)
    if path.exists() and (run is None or _run_at(path) != run):
        raise taken(path, "a checkpoint of another run, or no checkpoint")


def _run_at(path: Path) -> str | None:
    """The run id in the checkpoint at `path`; None if there is no checkpoint."""
    with contextlib.suppress(ConfigError, MessageError):
        return _unpack(_read(path), "checkpoint", path).text("run")
    return None


def _round0_at(path: Path) -> wire.Message:
    return _unpack(_read(round0_path(path)), "round 0", round0_path(path))


def _check_same(
    path: Path,
    started: wire.Message,
    server: Server,
    handshake: Handshake,
) -> None:
    # A checkpoint holds nothing of the calibration, which comes last.
    free = (setting("calibrate"),)
    difference = handshake.difference(Handshake.read(started, None), free)
    if difference:
        raise refusal(path, f"it belongs to a run with other settings: {difference}")
    least = server.settings.min_samples
    if started.has("min_samples") and (then := started.integer("min_samples")) != least:
        problem = f"its statistics were made with {setting('min_samples')} {then}"
        raise refusal(path, f"{problem}, not {least}")
    before = started.mapping("client_domains")
    now = {str(k): domain for k, domain in server.client_domains.items()}
    for k in {**before, **now}:
        was, is_now = before.get(k, "not there"), now.get(k, "not there")
        if was != is_now:
            raise refusal(
                path,
                f"it belongs to a run with other clients: client {k} was {was!r} "
                f"then and is {is_now!r} now",
            )


def grouped(tensors: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """Sort tensors named ``<number>.<name>`` by number and then by name."""
    groups: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition(".")
        groups.setdefault(int(number), {})[name] = tensor
    return groups


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        problem = error.strerror or error
        raise refusal(path, f"the file cannot be read: {problem}") from error


def _unpack(data: bytes, kind: str, path: Path) -> wire.Message:
    try:
        message = wire.unpack(data, kind, f"'{path}'")
        message.check_content()
        return message
    except MessageError as error:
        raise refusal(path, error.problem) from error


def ready_at(path: Path, restored: FinishedPart | None) -> set[int] | None:
    """The ready clients that the round-0 file at `path` lists.

    None if there is no such file, or if it does not belong to the run `restored`.
    """
    with contextlib.suppress(ConfigError):  # nothing to keep
        started = _round0_at(path)
        if restored is not None and started.text("run") == restored.run:
            return {int(k) for k in started.texts("ready")}
    return None


def _no_lock(path: Path, error: OSError) -> ConfigError:
    return unwritable(f"'{path}' cannot be made: {error.strerror or error}")


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
    restored : FinishedPart, optional
        The restored run. It keeps its id. Its file of round 0 is not written again.
    data : str
        The hash of all rows, if they are known here.

    Raises
    ------
    ConfigError
        `path` is a folder, or no possible file name, or a file of another run.
    """

    def __init__(
        self,
        path: str | Path,
        handshake: Handshake,
        restored: FinishedPart | None = None,
        data: str = "",
    ):
        self.path, self._handshake, self._data = Path(path), handshake, data
        self._notes = restored.notes if restored else []
        self._restored = restored.run if restored else None
        self._run = self._restored or secrets.token_hex(8)
        check_free(self.path, self._restored)
        #: The clients that the file of round 0 calls ready.
        self._ready = ready_at(self.path, restored)
        try:
            make_folder_of(self.path)
        except OSError as error:
            raise unwritable(
                f"the folder of '{path}' cannot be made: {error.strerror}"
            ) from error

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """A context in which no other process writes this checkpoint.

        It begins before the first checkpoint of this run is written.

        Raises
        ------
        ConfigError
            Another run writes there, or has done so since this object was made.
        """
        lock = self.path.with_name(self.path.name + ".lock")
        what = f"the checkpoint '{self.path}'"
        try:
            with locked(lock, what, _no_lock, waits=False, stays=False):
                check_free(self.path, self._restored)
                yield
        except AtWork as error:
            raise taken(self.path, "where another run is at work") from error

    def write(self, snapshot: Snapshot, coordinator: Coordinator) -> None:
        """Write the snapshot, and the file of round 0 if more clients are ready now.

        Raises
        ------
        ConfigError
            A file cannot be written. The earlier checkpoint stays complete.
        """
        # Domains keep their order: a restored run lists them as one that ran through.
        records = {
            "round0": as_json_value(snapshot.round0, "round0", ordered=False),
            "rounds": as_json_value(snapshot.rounds, "rounds", ordered=False),
            "progress": snapshot.progress,
            "findings": as_json_value(snapshot.findings, "findings"),
            "training": _training(coordinator.server),
            "notes": self._notes,
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
            round0 = self._round0_bytes(coordinator)
            write_atomically(round0_path(self.path), round0, _OWNER_ALONE)
            os.replace(following, self.path)
        finally:
            with contextlib.suppress(OSError):
                following.unlink()

    def _round0_bytes(self, coordinator: Coordinator) -> bytes:
        server = coordinator.server
        tensors: dict[str, Tensor] = {}
        for exchange in coordinator.exchanges:
            tensors.update(wire.under(exchange.name, exchange.kept()))
        numbers = {
            "run": self._run,
            "data": self._data,
            "min_samples": server.settings.min_samples,
            "client_domains": {str(k): d for k, d in server.client_domains.items()},
            "ready": [str(k) for k in server.aggregation_weights],
            **self._handshake.write()[0],
        }
        return wire.pack("round 0", wire.sealed(numbers, tensors), tensors)


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
    is_written : bool
        Whether this run has written a checkpoint. The file may be another run's.
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
        self._due, self.is_written = float("-inf"), False
        self._pending: tuple[Snapshot, Coordinator] | None = None

    @property
    def path(self) -> Path:
        return self._writer.path

    def claimed(self) -> contextlib.AbstractContextManager[None]:
        """A context in which no other run writes there; see `CheckpointWriter`."""
        # Any other place is in the run's own folder.
        return self._writer.claimed() if self._asked else contextlib.nullcontext()

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
            self._due, self.is_written = time.monotonic() + self._seconds, True
        self._pending = None
