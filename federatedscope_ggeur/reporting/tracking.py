"""Send a run's numbers to TensorBoard and Weights & Biases while it runs.

Both packages are optional; each is imported only if a run asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.printable import printable

from .records import Round0, RoundRecord


@dataclass(frozen=True)
class TrackingSettings:
    """The trackers that receive a run's numbers.

    Attributes
    ----------
    tensorboard : bool
        Write event files for TensorBoard into the run's folder.
    wandb : bool
        Send the numbers to Weights & Biases.
    online : bool
        Send each round to Weights & Biases at its end; otherwise all rounds at the end
        of the run.
    run : mapping
        The arguments of `wandb.init`.
    """

    tensorboard: bool = False
    wandb: bool = False
    online: bool = True
    run: Mapping[str, Any] | None = None


def missing_package(name: str, extra: str = "") -> str:
    """Tell how to install the package `name` if it is missing; "" if it is installed.

    `extra` names the extra of federatedscope-ggeur that installs it; by default, an
    extra with the package's name.
    """
    if find_spec(name) is not None:
        return ""
    command = f"pip install 'federatedscope-ggeur[{extra or name}]'"
    return f"needs the package {name}, which is not installed: {command}"


def scalars(record: RoundRecord) -> dict[str, float]:
    """The scores of a record, by the names that FederatedScope's log uses.

    The names are ``test_acc`` and similar ones, ``test_<domain>_acc``,
    ``test_domain_avg_acc`` and ``test_domain_std_acc``.
    """
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
    """Send every record that has scores to TensorBoard and Weights & Biases (W&B).

    Make this object when the run begins.

    Parameters
    ----------
    settings : TrackingSettings
    folder : Path, optional
        The run's folder; without it, nothing goes to TensorBoard.
    begins : bool
        Whether this object begins and ends the W&B run; if not, FederatedScope does.

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
        """Send the scores of round 0, of a later round, or of a calibrated head."""
        scored = record.closed_form if isinstance(record, Round0) else record
        if scored is not None and scored.evaluated:
            for tracker in self._trackers:
                tracker.note(scored.round, scalars(scored))

    def close(self, failed: bool = False) -> None:
        """End tracking when the run is over; a second call does nothing."""
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
    """Send scores to Weights & Biases.

    Parameters
    ----------
    online : bool
        Send each record at once; otherwise all of them at the end.
    begun : mapping, optional
        The arguments of `wandb.init`, which begins a run; None if FederatedScope has
        already begun one.
    """

    def __init__(self, online: bool, begun: Mapping[str, Any] | None):
        import wandb

        self._wandb, self._online, self._ends = wandb, online, begun is not None
        self._waiting: list[dict[str, float]] = []
        if begun is None:
            return
        try:
            wandb.init(**begun)
        except Exception as error:  # W&B's own: no account, no network, ...
            raise ConfigError(
                f"{setting('wandb')}: W&B cannot begin a run: {error}; to record the "
                "run on this machine only, set the environment variable "
                "WANDB_MODE=offline"
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
