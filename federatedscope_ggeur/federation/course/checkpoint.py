"""Checkpoints: what a server needs to go on after round 0 or any later round.

Two safetensors files: ``<path>.round0`` is written after round 0 (geometry, prototypes,
who is ready), and again when a client more is ready; ``<path>`` after round 0 and after
every round (the head, the method's state, the records so far). Both carry the run's id
and belong together.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, MessageError
from federatedscope_ggeur.federation.course.coordinator import Coordinator
from federatedscope_ggeur.federation.course.fs_checkpoint import weights_of_fs
from federatedscope_ggeur.federation.messages import PrepareReply, wire
from federatedscope_ggeur.federation.messages.handshake import Handshake
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.reporting import Round0, RoundRecord
from federatedscope_ggeur.reporting.plain import as_json_value, from_json_value


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
    agreement : Agreement
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
        #: Whose readiness the file of round 0 holds.
        self._ready = _ready_at(_round0_path(self._path), restored)
        if self._path.is_dir():
            raise ConfigError(
                f"federate.save_to: '{path}' is a folder; name a file, such as "
                f"'{self._path / 'checkpoint'}'"
            )
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(f"no folder for '{path}': {error.strerror}") from error

    def write(
        self, coordinator: Coordinator, round0: Round0, rounds: list[RoundRecord]
    ) -> None:
        """Write the state after the last of `rounds` (after round 0 if there are none).

        Raises
        ------
        ConfigError
            A file cannot be written; the earlier checkpoint stays whole.
        """
        records = {
            "round0": as_json_value(round0, "round0"),
            "rounds": as_json_value(rounds, "rounds"),
        }
        server = coordinator.server
        tensors = {"params": server.params}
        tensors.update({f"method.{k}": v for k, v in server.method_state.items()})
        numbers = {"run": self._run, "records": json.dumps(records)}
        data = wire.pack("checkpoint", numbers, tensors)
        try:
            if self._ready == server.prepare_replies.keys():
                write_atomically(self._path, data)
            else:
                self._write_both(data, coordinator)
                self._ready = set(server.prepare_replies)
        except (OSError, ConfigError) as error:
            raise _unwritable(error) from error

    def _write_both(self, data: bytes, coordinator: Coordinator) -> None:
        """Replace an earlier run's pair of files only when there is room for both."""
        following = self._path.with_name(self._path.name + ".new")
        try:
            write_atomically(following, data)
            round0 = _round0_bytes(self._run, coordinator, self._handshake)
            write_atomically(_round0_path(self._path), round0)
            os.replace(following, self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                following.unlink()
            raise


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
    agreement : Agreement

    Returns
    -------
    Progress or None
        None after weights alone.

    Raises
    ------
    ConfigError
        The file is missing or broken, of a run with other clients or settings, or of
        a later round than the last one; it says which.
    """
    try:
        return _restore(Path(path), coordinator, handshake)
    except ConfigError:
        raise
    # A file that was changed; MessageError and DataError are ValueErrors.
    except (ValueError, KeyError) as error:
        raise _refusal(path, str(error)) from error


def _restore(
    path: Path, coordinator: Coordinator, handshake: Handshake
) -> Progress | None:
    data = _read(path)
    server = coordinator.server
    if not _is_safetensors(data):
        if server.settings.closed_form is not None:
            raise _refusal(
                path,
                "it holds weights alone, and ggeur.closed_form puts others in their "
                "place; take one of the two",
            )
        server.params = weights_of_fs(path, server.model, server.settings.method)
        return None
    progress = _unpack(data, "checkpoint", path)
    started = _unpack(_read(_round0_path(path)), "round 0", _round0_path(path))
    if progress.text("run") != started.text("run"):
        raise _refusal(path, f"'{_round0_path(path)}' is of another run")
    _check_same(path, started, server.client_domains, handshake)
    params = progress.tensor("params", torch.float32, server.params.shape)
    records = json.loads(progress.text("records"))
    done = Progress(
        from_json_value(Round0, records["round0"], "round0"),
        from_json_value(list[RoundRecord], records["rounds"], "rounds"),
        progress.text("run"),
    )
    if len(done.rounds) > server.settings.total_rounds:
        raise _refusal(
            path,
            f"it is of round {len(done.rounds)} and federate.total_round_num is "
            f"{server.settings.total_rounds}; raise it",
        )
    server.resume(
        _ready_from(started),
        started.tensors_under("prototypes"),
        params,
        progress.tensors_under("method"),
    )
    coordinator.geometry = _bytes_of(started, "geometry")
    coordinator.shared = _bytes_of(started, "shared")
    return done


def checkpoint_client_domains(path: str | Path) -> dict[int, str]:
    """The clients, number to domain, of the run whose checkpoint stands at `path`.

    Empty where it holds weights alone.

    Raises
    ------
    ConfigError
        The file is missing or broken.
    """
    path = Path(path)
    if not _is_safetensors(_read(path)):
        return {}
    started = _unpack(_read(_round0_path(path)), "round 0", _round0_path(path))
    return {int(k): domain for k, domain in started.mapping("roster").items()}


def _round0_path(path: Path) -> Path:
    return path.with_name(path.name + ".round0")


def _round0_bytes(run: str, coordinator: Coordinator, handshake: Handshake) -> bytes:
    server = coordinator.server
    tensors = {
        "geometry": _as_tensor(coordinator.geometry),
        "shared": _as_tensor(coordinator.shared),
    }
    held = server.round0_tensors()
    tensors.update({f"prototypes.{k}": v for k, v in held.items()})
    for k, ready in server.prepare_replies.items():
        tensors.update({f"share.{k}.{n}": t for n, t in ready.init_upload.items()})
    numbers = {
        "run": run,
        "roster": {str(k): domain for k, domain in server.client_domains.items()},
        "weights": {
            str(k): repr(r.aggregation_weight)
            for k, r in server.prepare_replies.items()
        },
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
    free = ("ggeur.calibrate",)
    difference = handshake.difference(Handshake.of_message(started), free)
    if difference:
        raise _refusal(path, f"it is of a run with other settings: {difference}")
    before = started.mapping("roster")
    now = {str(k): domain for k, domain in client_domains.items()}
    if before != now:
        keys = [k for k in {**before, **now} if before.get(k) != now.get(k)]
        raise _refusal(
            path,
            f"it is of a run with other clients: client {keys[0]} was "
            f"{before.get(keys[0], 'not there')!r} and is "
            f"{now.get(keys[0], 'not there')!r} now",
        )


def _ready_from(started: wire.Message) -> dict[int, PrepareReply]:
    shares: dict[str, dict[str, Tensor]] = {}
    for key, tensor in started.tensors_under("share").items():
        number, _, name = key.partition(".")
        shares.setdefault(number, {})[name] = tensor
    return {
        int(k): PrepareReply(int(k), float(weight), shares.get(k, {}))
        for k, weight in started.mapping("weights").items()
    }


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _refusal(path, f"cannot be read: {error.strerror}") from error


def _unpack(data: bytes, kind: str, path: Path) -> wire.Message:
    try:
        return wire.unpack(data, kind, f"'{path}'")
    except MessageError as error:
        raise _refusal(path, error.problem) from error


def _ready_at(path: Path, restored: Progress | None) -> set[int] | None:
    """The clients ready in the restored run's file of round 0, if it is at `path`."""
    try:
        started = _unpack(_read(path), "round 0", path)
        if restored is not None and started.text("run") == restored.run:
            return set(_ready_from(started))
    except ConfigError:
        pass  # Nothing there that could be kept.
    return None


def _is_safetensors(data: bytes) -> bool:
    return data[8:9] == b"{"


def _as_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8)[: len(data)]


def _bytes_of(message: wire.Message, field: str) -> bytes:
    return message.tensor(field, torch.uint8, (None,)).numpy().tobytes()


def _unwritable(problem: object) -> ConfigError:
    return ConfigError(f"federate.save_to: {problem}; make room or name another place")


def _refusal(path: str | Path, problem: str) -> ConfigError:
    return ConfigError(f"federate.restore_from: '{path}' cannot be used: {problem}")
