"""A run's numbers as they come, for those who watch: TensorBoard and Weights & Biases.

Both packages are optional; nothing is imported before a run asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.printable import printable
from federatedscope_ggeur.reporting.records import Round0, RoundRecord


@dataclass(frozen=True)
class TrackingSettings:
    """Who is told of a run's numbers.

    Attributes
    ----------
    tensorboard : bool
        Event files go into the run's folder.
    wandb : bool
    online : bool
        Weights & Biases hear of each round when it is over, not of all at the end.
    run : mapping
        What `wandb.init` is given.
    """

    tensorboard: bool = False
    wandb: bool = False
    online: bool = True
    run: Mapping[str, Any] | None = None


def missing_package(name: str, extra: str = "") -> str:
    """What to do where the package `name` is not there; "" where it is.

    `extra` is the plugin's that brings it; its own name if none is given."""
    if find_spec(name) is not None:
        return ""
    command = f"pip install 'federatedscope-ggeur[{extra or name}]'"
    return f"needs the package {name}, which is not installed: {command}"


def scalars(record: RoundRecord) -> dict[str, float]:
    """The scores of a record by the names of FederatedScope's log: ``test_acc``, ...,
    ``test_<domain>_acc``, ``test_domain_avg_acc``, ``test_domain_std_acc``."""
    found: dict[str, float | None] = dict(record.metrics or {})
    for domain, accuracy in (record.accuracy or {}).items():
        found[f"test_{printable(domain)}_acc"] = accuracy
    found["test_domain_avg_acc"] = record.avg
    found["test_domain_std_acc"] = record.std
    return {name: value for name, value in found.items() if value is not None}


class _Tracker(Protocol):
    def note(self, number: int, values: Mapping[str, float]) -> None: ...
    def close(self, failed: bool) -> None: ...


class Tracking:
    """Tells of every record with scores; made where the run begins.

    Parameters
    ----------
    settings : TrackingSettings
    folder : Path, optional
        The run's; without one there is no TensorBoard.
    begins : bool
        Whether the W&B run is begun and ended here, not by FederatedScope.

    Raises
    ------
    ConfigError
        W&B cannot begin a run.
    """

    def __init__(
        self, settings: TrackingSettings, folder: Path | None, begins: bool = True
    ):
        self._trackers: list[_Tracker] = []
        if settings.tensorboard and folder is not None:
            self._trackers.append(_TensorBoard(folder))
        if settings.wandb:
            begun = settings.run or {}
            self._trackers.append(_Wandb(settings.online, begun if begins else None))

    def note(self, record: Round0 | RoundRecord) -> None:
        """Round 0, a round, or a calibrated head."""
        scored = record.closed_form if isinstance(record, Round0) else record
        if scored is not None and scored.evaluated:
            for tracker in self._trackers:
                tracker.note(scored.round, scalars(scored))

    def close(self, failed: bool = False) -> None:
        """The run is over; a second call does nothing."""
        while self._trackers:
            self._trackers.pop().close(failed)


class _TensorBoard:
    def __init__(self, folder: Path):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def note(self, number: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, number)
        self._writer.flush()

    def close(self, failed: bool) -> None:
        self._writer.close()


class _Wandb:
    """`begun` is what a run is begun with; None for the one that is under way."""

    def __init__(self, online: bool, begun: Mapping[str, Any] | None):
        import wandb

        self._wandb, self._online, self._ends = wandb, online, begun is not None
        self._waiting: list[dict[str, float]] = []
        if begun is None:
            return
        try:
            wandb.init(**begun)
        except Exception as error:  # of W&B's own making: no account, no network, ...
            raise ConfigError(
                f"{setting('wandb')}: W&B cannot begin a run: {error}; the environment "
                "variable WANDB_MODE=offline keeps it on this machine"
            ) from error

    def note(self, number: int, values: Mapping[str, float]) -> None:
        self._waiting.append({"round": number, **values})
        if self._online:
            self._send()

    def close(self, failed: bool) -> None:
        self._send()
        if self._ends:
            self._wandb.finish(exit_code=int(failed))

    def _send(self) -> None:
        while self._waiting:
            self._wandb.log(self._waiting.pop(0))
