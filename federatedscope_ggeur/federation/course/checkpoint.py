"""Checkpoints: what a server, and each client, needs to go on where a run was.

Of the server two safetensors files: ``<path>.round0`` is written after round 0
(geometry, prototypes, who is ready), and again when a client more is ready; ``<path>``
after round 0 and after every round (the head, the method's state, the records so far).
Both carry the run's id and belong together. What clients keep is in `client_store`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, MessageError, setting
from federatedscope_ggeur.federation.course.coordinator import Coordinator
from federatedscope_ggeur.federation.messages import Handshake, PrepareReply, wire
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.models import Model, to_vector
from federatedscope_ggeur.reporting import Round0, RoundRecord
from federatedscope_ggeur.reporting.plain import as_json_value, from_json_value

logger = logging.getLogger(__name__)

#: What round 0 sends to everyone, kept by the coordinator as bytes.
_SENT = ("geometry", "space", "init_broadcast")


@dataclass(frozen=True)
class Progress:
    """What a restored run has behind it; `run` is its id."""

    round0: Round0
    rounds: list[RoundRecord]
    run: str


class CheckpointWriter:
    """Writes the checkpoint of one run.

    Parameters
    ----------
    path : path
        ``federate.save_to``.
    handshake : Handshake
        Kept in the file; only a run with the same one can go on from it.
    restored : Progress, optional
        Of the run that goes on; it keeps its id, and its round 0 is not written twice.

    Raises
    ------
    ConfigError
        `path` is a folder, or cannot have a file.
    """

    def __init__(
        self, path: str | Path, handshake: Handshake, restored: Progress | None = None
    ):
        self._path, self._handshake = Path(path), handshake
        self._run = restored.run if restored else secrets.token_hex(8)
        try:
            # The longest name that there will be.
            is_folder = self._path.is_dir()
            self._path.with_name(f"{self._path.name}.round0.new").exists()
        except (OSError, ValueError) as error:
            problem = getattr(error, "strerror", None) or error
            raise unwritable(f"'{path}' is no name for a file: {problem}") from error
        #: Whose readiness the file of round 0 holds.
        self._ready = _ready_at(self._path, restored)
        if is_folder:
            example = self._path / "checkpoint"
            problem = f"'{path}' is a folder; name a file, such as '{example}'"
            raise ConfigError(f"{setting('save_to')}: {problem}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(f"no folder for '{path}': {error.strerror}") from error

    def write(
        self, coordinator: Coordinator, round0: Round0, rounds: list[RoundRecord]
    ) -> None:
        """Write the state after the last of `rounds` (after round 0 if there are none).

        Raises
        ------
        ConfigError
            A file cannot be written; the earlier checkpoint stays whole.
        """
        server = coordinator.server
        records = {
            "round0": as_json_value(round0, "round0"),
            "rounds": as_json_value(rounds, "rounds"),
            "divergence": coordinator.divergence.state(),
        }
        # The model as others see it, and what training goes on from.
        tensors = wire.under("method", server.method_state)
        tensors.update(params=server.raw_params, trained=server.params)
        if server.settings.keeps_best:
            tensors.update(closed_form=server.head_params(closed_form=True))
        numbers = {"run": self._run, "records": json.dumps(records)}
        numbers["checksum"] = wire.checksum(tensors)
        data = wire.pack("checkpoint", numbers, tensors)
        try:
            if self._ready == server.prepare_replies.keys():
                write_atomically(self._path, data)
            else:
                self._write_both(data, coordinator)
                self._ready = set(server.prepare_replies)
        except (OSError, ConfigError) as error:
            raise unwritable(error) from error

    def _write_both(self, data: bytes, coordinator: Coordinator) -> None:
        """Replace an earlier run's pair of files only when there is room for both."""
        following = self._path.with_name(self._path.name + ".new")
        try:
            write_atomically(following, data)
            round0 = _round0_bytes(self._run, coordinator, self._handshake)
            write_atomically(_round0_path(self._path), round0)
            os.replace(following, self._path)
        finally:
            with contextlib.suppress(OSError):
                following.unlink()


def restore(
    path: str | Path, coordinator: Coordinator, handshake: Handshake
) -> Progress | None:
    """Set `coordinator` to where the run of the checkpoint at `path` was.

    Parameters
    ----------
    path : path
        ``federate.restore_from``: of a checkpoint of this program, or of FederatedScope
        (weights alone: a run starts from them at round 0).
    coordinator : Coordinator
        Of the same clients and settings.
    handshake : Handshake

    Returns
    -------
    Progress or None
        None after weights alone.

    Raises
    ------
    ConfigError
        The file is missing or broken, or of a run that is not this one; it says why.
    """
    path, server = Path(path), coordinator.server
    try:
        data = _read(path)
        if _is_safetensors(data):
            return _restore(path, data, coordinator, handshake)
        if server.settings.closed_form is not None:
            others = f"{setting('closed_form')} puts others in their place"
            problem = f"it holds weights alone, and {others}; take one of the two"
            raise refusal(path, problem)
        server.start_from(_weights_of_fs(path, server.model, server.task.method))
        return None
    except ConfigError:
        raise
    # A file that was changed; MessageError and DataError are ValueErrors.
    except (ValueError, KeyError) as error:
        raise refusal(path, str(error)) from error


def _restore(
    path: Path, data: bytes, coordinator: Coordinator, handshake: Handshake
) -> Progress:
    server = coordinator.server
    progress = _unpack(data, "checkpoint", path)
    started = _round0_at(path)
    if progress.text("run") != started.text("run"):
        raise refusal(path, f"'{_round0_path(path)}' is of another run")
    _check_same(path, started, server.client_domains, handshake)
    for name in _SENT:
        held = started.tensor(name, torch.uint8, (None,))
        setattr(coordinator, name, held.numpy().tobytes())
    size = len(server.params) if server.model.fixed_size else None
    params = progress.tensor("trained", torch.float32, (size,))
    records = json.loads(progress.text("records"))
    done = Progress(
        from_json_value(Round0, records["round0"], "round0"),
        from_json_value(list[RoundRecord], records["rounds"], "rounds"),
        progress.text("run"),
    )
    progress.check_content()
    started.check_content()
    coordinator.divergence.load(records["divergence"])
    last, wanted = len(done.rounds), server.settings.total_rounds
    if last > wanted:
        problem = f"it is of round {last} and {setting('total_rounds')} is {wanted}"
        raise refusal(path, f"{problem}; raise it")
    if server.closed_form is not None and server.settings.keeps_best:
        solved = progress.tensor("closed_form", torch.float32, (None,))
        server.scored_model.make_room_for(len(solved))
        server.closed_form.params = solved
    server.resume(
        _replies_in(started),
        started.tensors_under("prototypes"),
        params,
        progress.tensors_under("method"),
        coordinator.space,
    )
    logger.info("goes on after round %d of the run of '%s'", last, path)
    return done


def checkpoint_client_domains(path: str | Path) -> dict[int, str]:
    """The clients, number to domain, of the run whose checkpoint stands at `path`.

    Empty where it holds weights alone; `ConfigError` where it is missing or broken."""
    if not _is_safetensors(_read(Path(path))):
        return {}
    domains = _round0_at(Path(path)).mapping("client_domains")
    return {int(k): domain for k, domain in domains.items()}


def checkpoint_rounds(path: str | Path) -> int:
    """How many rounds are over in the checkpoint at `path`; 0 where it holds weights
    alone; `ConfigError` where it is missing or broken."""
    data = _read(Path(path))
    if not _is_safetensors(data):
        return 0
    records = _unpack(data, "checkpoint", Path(path)).text("records")
    return len(json.loads(records)["rounds"])


def _weights_of_fs(path: Path, model: Model, method: Method) -> Tensor:
    """Weights [P] from FederatedScope's checkpoint at `path`; no code in it is run."""
    if not method.federated:
        problem = f"it holds weights alone, and with {method.name} clients take none"
        raise refusal(path, f"{problem} from the server")
    try:
        # The older formats of torch.save are read by code that has run foreign code
        # before, weights_only or not; FederatedScope writes zip files.
        if not zipfile.is_zipfile(path):
            raise ValueError("not a zip file, which torch.save has written since 1.6")
        content = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(content["model"])
    # torch.load raises whatever its unpickler meets in a foreign file.
    except Exception as error:
        raise refusal(
            path,
            "it is neither a checkpoint of this program nor FederatedScope's with the "
            f"weights of this head ({type(error).__name__}: {error})",
        ) from error
    weights = to_vector(model)
    if not torch.isfinite(weights).all():
        raise refusal(path, "its weights hold NaN or infinity")
    return weights


def _round0_path(path: Path) -> Path:
    return path.with_name(path.name + ".round0")


def _round0_at(path: Path) -> wire.Message:
    return _unpack(_read(_round0_path(path)), "round 0", _round0_path(path))


def _round0_bytes(run: str, coordinator: Coordinator, handshake: Handshake) -> bytes:
    server, replies = coordinator.server, coordinator.server.prepare_replies
    tensors = wire.under("prototypes", server.prototype_book.tensors())
    for name in _SENT:
        data = np.frombuffer(getattr(coordinator, name), np.uint8)
        tensors[name] = torch.from_numpy(data.copy())
    for k, reply in replies.items():
        tensors.update(wire.under(f"init_upload.{k}", reply.init_upload))
    weights = {str(k): repr(r.aggregation_weight) for k, r in replies.items()}
    numbers = {
        "run": run,
        "client_domains": {str(k): d for k, d in server.client_domains.items()},
        "aggregation_weights": weights,
        "checksum": wire.checksum(tensors),
        **handshake.numbers(),
    }
    return wire.pack("round 0", numbers, tensors)


def _check_same(
    path: Path,
    started: wire.Message,
    client_domains: Mapping[int, str],
    handshake: Handshake,
) -> None:
    # Calibration comes after all that a checkpoint holds.
    free = (setting("calibrate"),)
    difference = handshake.difference(Handshake.of_message(started), free)
    if difference:
        raise refusal(path, f"it is of a run with other settings: {difference}")
    before = started.mapping("client_domains")
    now = {str(k): domain for k, domain in client_domains.items()}
    for k in {**before, **now}:
        was, is_now = before.get(k, "not there"), now.get(k, "not there")
        if was != is_now:
            raise refusal(
                path,
                f"it is of a run with other clients: client {k} was {was!r} and is "
                f"{is_now!r} now",
            )


def _replies_in(started: wire.Message) -> dict[int, PrepareReply]:
    uploads = grouped(started.tensors_under("init_upload"))
    weights = started.mapping("aggregation_weights")
    return {
        int(k): PrepareReply(int(k), float(weight), uploads.get(int(k), {}))
        for k, weight in weights.items()
    }


def grouped(tensors: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """Tensors named ``<number>.<name>``, by number and then name."""
    found: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition(".")
        found.setdefault(int(number), {})[name] = tensor
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise refusal(path, f"cannot be read: {error.strerror}") from error


def _unpack(data: bytes, kind: str, path: Path) -> wire.Message:
    try:
        return wire.unpack(data, kind, f"'{path}'")
    except MessageError as error:
        raise refusal(path, error.problem) from error


def _ready_at(path: Path, restored: Progress | None) -> set[int] | None:
    """The clients ready in the restored run's file of round 0, if `path` has it."""
    with contextlib.suppress(ConfigError):  # nothing there that could be kept
        started = _round0_at(path)
        if restored is not None and started.text("run") == restored.run:
            return set(_replies_in(started))
    return None


def _is_safetensors(data: bytes) -> bool:
    return data[8:9] == b"{"


def unwritable(problem: object) -> ConfigError:
    """The error of a checkpoint that cannot be written."""
    where = setting("save_to")
    return ConfigError(f"{where}: {problem}; make room or name another place")


def refusal(path: str | Path, problem: str) -> ConfigError:
    """The error of a file at `path` that a run cannot go on from."""
    return ConfigError(f"{setting('restore_from')}: '{path}' cannot be used: {problem}")
