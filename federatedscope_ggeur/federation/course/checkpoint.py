"""Reads checkpoints and restores a server's state from them."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, MessageError, setting
from federatedscope_ggeur.files import read_regular
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.models import Model, to_vector
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting import Finding, Round0, RoundRecord
from federatedscope_ggeur.reporting.json_values import from_json_value, parse_json

from .. import wire
from ..wire.handshake import Handshake
from .checkpoint_files import check_name, refusal, round0_path, taken
from .coordinator import Coordinator

logger = get_logger(__name__)


@dataclass(frozen=True)
class Progress:
    """The finished part of a restored run; `run` is the id of the run."""

    round0: Round0
    rounds: list[RoundRecord]
    run: str


def restore(
    path: str | Path, coordinator: Coordinator, handshake: Handshake
) -> Progress | None:
    """Set `coordinator` to the state of the checkpoint at `path`.

    Parameters
    ----------
    path : path
        ``federate.restore_from``: a checkpoint of this program or of FederatedScope.
        FederatedScope's holds only weights: the run starts from them at round 0.
    coordinator : Coordinator
        The coordinator to set. It must have the clients and settings of the checkpoint.
    handshake : Handshake

    Returns
    -------
    Progress or None
        None if the checkpoint holds only weights.

    Raises
    ------
    ConfigError
        The file is missing, broken, or of another run. The error says why.
    """
    path, server = Path(path), coordinator.server
    try:
        data = _read(path)
        if _is_safetensors(data):
            return _restore(path, data, coordinator, handshake)
        if server.settings.demands.closed_form:
            others = f"{setting('closed_form')} would replace them"
            problem = (
                f"the file holds only weights, and {others}; leave one of the two "
                "settings out"
            )
            raise refusal(path, problem)
        server.start_from(_weights_of_fs(path, server.model, server.task.method))
        return None
    except ConfigError:
        raise
    # The file was changed. MessageError and DataError are ValueErrors.
    except (ValueError, KeyError) as error:
        raise refusal(path, str(error)) from error


def _restore(
    path: Path, data: bytes, coordinator: Coordinator, handshake: Handshake
) -> Progress:
    server = coordinator.server
    progress = _unpack(data, "checkpoint", path)
    started = _round0_at(path)
    if progress.text("run") != started.text("run"):
        raise refusal(
            path,
            f"'{round0_path(path)}' belongs to another run; put the file of the same "
            "run beside the checkpoint",
        )
    _check_same(path, started, server.client_domains, handshake)
    size = len(server.params) if server.model.fixed_size else None
    params = progress.tensor("trained", torch.float32, (size,))
    records = _records(progress)
    done = Progress(
        from_json_value(Round0, records["round0"], "round0"),
        from_json_value(list[RoundRecord], records["rounds"], "rounds"),
        progress.text("run"),
    )
    found = records.get("findings", [])  # older files have none
    coordinator.screen.load(from_json_value(list[Finding], found, "findings"))
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


def checkpoint_client_domains(path: str | Path) -> dict[int, str]:
    """The domain of each client, by number, from the checkpoint at `path`.

    The result is empty if the checkpoint holds only weights. Raises `ConfigError` if
    the file is missing or broken.
    """
    if not _is_safetensors(_read(Path(path))):
        return {}
    domains = _round0_at(Path(path)).mapping("client_domains")
    return {int(k): domain for k, domain in domains.items()}


def checkpoint_rounds(path: str | Path) -> int:
    """The number of finished rounds in the checkpoint at `path`.

    It is 0 if the checkpoint holds only weights. Raises `ConfigError` if the file is
    missing or broken.
    """
    data = _read(Path(path))
    if not _is_safetensors(data):
        return 0
    records = _records(_unpack(data, "checkpoint", Path(path)))
    return len(from_json_value(list[Any], records.get("rounds"), "rounds"))


def _records(progress: wire.Message) -> dict[str, Any]:
    found = parse_json(progress.text("records"))
    return from_json_value(dict[str, Any], found, "records")


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


def _weights_of_fs(path: Path, model: Model, method: Method) -> Tensor:
    """The weights [P] in FederatedScope's checkpoint at `path`.

    No code that the file may contain is run.
    """
    if not method.federated:
        problem = (
            f"the file holds only weights, but with {method.name} clients take no "
            "weights"
        )
        raise refusal(path, f"{problem} from the server; leave the setting out")
    try:
        # FederatedScope writes zip files. For older formats torch's reader has run
        # foreign code before, even with weights_only.
        if not zipfile.is_zipfile(path):
            raise ValueError(
                "not a zip file; torch.save writes zip files since torch 1.6"
            )
        content = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(content["model"])
    # torch.load raises any error that its unpickler meets in a foreign file.
    except Exception as error:
        raise refusal(
            path,
            "the file is neither a checkpoint of this program nor one of "
            f"FederatedScope with the weights of this head ({type(error).__name__}: "
            f"{error})",
        ) from error
    weights = to_vector(model)
    if not torch.isfinite(weights).all():
        raise refusal(path, "its weights contain NaN or infinity")
    return weights


def _round0_at(path: Path) -> wire.Message:
    return _unpack(_read(round0_path(path)), "round 0", round0_path(path))


def _check_same(
    path: Path,
    started: wire.Message,
    client_domains: Mapping[int, str],
    handshake: Handshake,
) -> None:
    # A checkpoint holds nothing of the calibration, which comes last.
    free = (setting("calibrate"),)
    difference = handshake.difference(Handshake.of_message(started), free)
    if difference:
        raise refusal(path, f"it belongs to a run with other settings: {difference}")
    before = started.mapping("client_domains")
    now = {str(k): domain for k, domain in client_domains.items()}
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
    found: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition(".")
        found.setdefault(int(number), {})[name] = tensor
    return found


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


def ready_at(path: Path, restored: Progress | None) -> set[int] | None:
    """The ready clients that the round-0 file at `path` lists.

    None if there is no such file, or if it does not belong to the run `restored`.
    """
    with contextlib.suppress(ConfigError):  # nothing to keep
        started = _round0_at(path)
        if restored is not None and started.text("run") == restored.run:
            return {int(k) for k in started.texts("ready")}
    return None


def _is_safetensors(data: bytes) -> bool:
    return data[8:9] == b"{"
