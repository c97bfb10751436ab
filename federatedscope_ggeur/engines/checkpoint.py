"""Checkpoints: what a server needs to go on after round 0 or any later round.

Two safetensors files: ``<path>.round0`` is written once, after round 0 (geometry,
prototypes, who is ready); ``<path>`` after round 0 and after every round (the head, the
method's state, the records so far). Both carry the run's id and belong together.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from federatedscope_ggeur.engines.coordinator import Coordinator
from federatedscope_ggeur.errors import ConfigError, DataError, MessageError
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.join import Agreement
from federatedscope_ggeur.federation.messages import Ready
from federatedscope_ggeur.heads import Head, to_vector
from federatedscope_ggeur.reporting import Round0, RoundRecord, write_atomically
from federatedscope_ggeur.reporting.plain import as_json_value, from_json_value


@dataclass(frozen=True)
class Progress:
    """What a restored run has behind it."""

    round0: Round0
    rounds: list[RoundRecord]


class CheckpointWriter:
    """Writes the checkpoint of one run.

    Parameters
    ----------
    path : path
        ``federate.save_to``.
    agreement : Agreement
        Kept in the file; only a run with the same one can go on from it.
    """

    def __init__(self, path: str | Path, agreement: Agreement):
        self._path, self._agreement = Path(path), agreement
        self._run = secrets.token_hex(8)
        self._has_round0 = False

    def write(
        self, coordinator: Coordinator, round0: Round0, rounds: list[RoundRecord]
    ) -> None:
        """Write the state after the last of `rounds` (after round 0 if there are none).

        Raises
        ------
        ConfigError
            A file cannot be written; the earlier checkpoint stays whole.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"federate.save_to: cannot make the folder '{self._path.parent}': "
                f"{error.strerror}"
            ) from error
        if not self._has_round0:
            data = _round0_bytes(self._run, coordinator, self._agreement)
            write_atomically(_round0_path(self._path), data)
            self._has_round0 = True
        records = {
            "round0": as_json_value(round0, "round0"),
            "rounds": as_json_value(rounds, "rounds"),
        }
        server = coordinator.server
        tensors = {"params": server.params}
        tensors.update({f"method.{k}": v for k, v in server.method_state.items()})
        numbers = {"run": self._run, "records": json.dumps(records)}
        write_atomically(self._path, wire.pack("checkpoint", numbers, tensors))


def restore(path: str | Path, coordinator: Coordinator, agreement: Agreement):
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
        The file is missing or broken, or of a run with other clients or settings; it
        says which.
    """
    path = Path(path)
    data = _read(path)
    server = coordinator.server
    if not _is_safetensors(data):
        server.params = _weights_of_fs(path, server.head)
        return None
    progress = _unpack(data, "checkpoint", path)
    started = _unpack(_read(_round0_path(path)), "round 0", _round0_path(path))
    if progress.text("run") != started.text("run"):
        raise _refusal(path, f"'{_round0_path(path)}' is of another run")
    _check_same(path, started, server.roster, agreement)
    try:
        records = json.loads(progress.text("records"))
        params = progress.tensor("params", torch.float32, server.params.shape)
        done = Progress(
            from_json_value(Round0, records["round0"], "round0"),
            from_json_value(list[RoundRecord], records["rounds"], "rounds"),
        )
    except (MessageError, DataError, ValueError, KeyError) as error:
        raise _refusal(path, str(error)) from error
    server.resume(
        _ready_from(started),
        started.tensors_under("prototypes"),
        params,
        progress.tensors_under("method"),
    )
    coordinator.geometry = _bytes_of(started, "geometry")
    coordinator.shared = _bytes_of(started, "shared")
    return done


def _round0_path(path: Path) -> Path:
    return path.with_name(path.name + ".round0")


def _round0_bytes(run: str, coordinator: Coordinator, agreement: Agreement) -> bytes:
    server = coordinator.server
    tensors = {
        "geometry": _as_tensor(coordinator.geometry),
        "shared": _as_tensor(coordinator.shared),
    }
    tensors.update(
        {f"prototypes.{k}": v for k, v in server.round0_tensors().items()},
    )
    for k, ready in server.ready.items():
        tensors.update({f"share.{k}.{n}": t for n, t in ready.shared.items()})
    numbers = {
        "run": run,
        "roster": {str(k): domain for k, domain in server.roster.items()},
        "weights": {str(k): repr(r.weight) for k, r in server.ready.items()},
        "class_names": list(agreement.class_names),
        "dim": agreement.dim,
        "encoder": agreement.encoder,
        "settings": dict(agreement.settings),
    }
    return wire.pack("round 0", numbers, tensors)


def _check_same(
    path: Path, started: wire.Message, roster: Mapping[int, str], agreement: Agreement
) -> None:
    kept = Agreement(
        started.texts("class_names"),
        started.integer("dim", 1),
        started.text("encoder"),
        started.mapping("settings"),
    )
    difference = agreement.difference(kept)
    if difference:
        raise _refusal(path, f"it is of a run with other settings: {difference}")
    before = started.mapping("roster")
    now = {str(k): domain for k, domain in roster.items()}
    if before != now:
        keys = [k for k in {**before, **now} if before.get(k) != now.get(k)]
        raise _refusal(
            path,
            f"it is of a run with other clients: client {keys[0]} was "
            f"{before.get(keys[0], 'not there')!r} and is "
            f"{now.get(keys[0], 'not there')!r} now",
        )


def _ready_from(started: wire.Message) -> dict[int, Ready]:
    shares: dict[str, dict[str, Tensor]] = {}
    for key, tensor in started.tensors_under("share").items():
        number, _, name = key.partition(".")
        shares.setdefault(number, {})[name] = tensor
    return {
        int(k): Ready(int(k), float(weight), shares.get(k, {}))
        for k, weight in started.mapping("weights").items()
    }


def _weights_of_fs(path: Path, head: Head) -> Tensor:
    """The weights in a checkpoint of FederatedScope; no code in it is run."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        state = content["model"]
        head.load_state_dict(state)
    # torch.load raises whatever its unpickler meets in a foreign file.
    except Exception as error:
        raise _refusal(
            path,
            f"it is neither a checkpoint of this program nor FederatedScope's with the "
            f"weights of this head ({type(error).__name__}: {error})",
        ) from error
    return to_vector(head)


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


def _is_safetensors(data: bytes) -> bool:
    return data[8:9] == b"{"


def _as_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8)[: len(data)]


def _bytes_of(message: wire.Message, field: str) -> bytes:
    return message.tensor(field, torch.uint8, (None,)).numpy().tobytes()


def _refusal(path: Path, problem: str) -> ConfigError:
    return ConfigError(f"federate.restore_from: '{path}' cannot be used: {problem}")
