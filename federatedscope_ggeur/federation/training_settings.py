"""The settings of local training, which client and server share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.models import CPU, Model

from .optimizers import OptimizerSettings, Schedule

#: The least momentum of SGD on a share of the set.
SHARE_MOMENTUM = 0.9


@dataclass(frozen=True)
class TrainingSettings:
    """The settings of local training, in FederatedScope's terms.

    Attributes
    ----------
    optimizer : OptimizerSettings
    local_update_steps : int
        How many epochs or mini-batches a round has; `batch_or_epoch` says which.
    batch_or_epoch : {"batch", "epoch"}
    batch_size : int
    shuffle : bool
    drop_last : bool
        Whether the last batch of an epoch is left out if it is smaller.
    grad_clip : float
        The largest norm of a gradient; no limit if it is 0 or negative.
    device : torch.device
        The device for the arithmetic. Random draws are always made on the CPU.
    schedule : StepSchedule or CosineSchedule, optional
        The learning rate as a function of the round.
    """

    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    local_update_steps: int = 1
    batch_or_epoch: str = "epoch"
    batch_size: int = 64
    shuffle: bool = True
    drop_last: bool = False
    grad_clip: float = -1.0
    device: torch.device = CPU
    schedule: Schedule | None = None

    def in_round(self, number: int) -> TrainingSettings:
        """A copy of the settings that has the learning rate of a round."""
        if self.schedule is None:
            return self
        rate = self.schedule.rate(self.optimizer.lr, number)
        return replace(self, optimizer=replace(self.optimizer, lr=rate))

    def batches(self, rows: int) -> int:
        """The number of mini-batches of a round on `rows` rows."""
        per_epoch = -(-self.usable(rows) // self.batch_size)
        if self.batch_or_epoch == "epoch" or per_epoch == 0:
            return self.local_update_steps * per_epoch
        return self.local_update_steps

    def reach(self, rows: int) -> float:
        """T: how far SGD goes in a round on `rows` rows.

        T limits what a round can learn, whatever the number of rows. See
        `OptimizerSettings.reach`.
        """
        return self.optimizer.reach(self.batches(rows))

    def on_share(self, whole: int, drawn: int) -> TrainingSettings:
        """Adapt the settings to fewer rows per epoch, so that T stays the same.

        An epoch then has `drawn` rows in place of `whole`, and so fewer steps. First
        the momentum is raised to `SHARE_MOMENTUM`, since a high rate overshoots. Then
        the rate is raised until T is reached.
        """
        batches, fewer = self.batches(whole), self.batches(drawn)
        if not 0 < fewer < batches:
            return self
        optimizer = self.optimizer.as_far(batches, fewer, SHARE_MOMENTUM)
        return replace(self, optimizer=optimizer)

    def batch_sizes(self, rows: int) -> set[int]:
        """The sizes of the mini-batches of a round."""
        full, rest = divmod(self.usable(rows), self.batch_size)
        sizes = {self.batch_size} if full else set()
        reaches_the_last = self.batches(rows) > full
        return sizes | ({rest} if rest and reaches_the_last else set())

    def usable(self, rows: int) -> int:
        """How many of `rows` an epoch uses."""
        return rows - rows % self.batch_size if self.drop_last else rows


def check_batches(
    model: Model, training: TrainingSettings, rows: int, client: int
) -> None:
    """Refuse batches of a single row if a layer normalises over the batch.

    Raises
    ------
    ConfigError
        `client`, with this number of `rows`, would have such a batch.
    """
    if not model.norm_modules or 1 not in training.batch_sizes(rows):
        return
    size = setting("batch_size")
    more = f", or {model.norms_without_batches}" if model.norms_without_batches else ""
    raise ConfigError(
        f"client {client}: with {rows} rows and {size} {training.batch_size}, one "
        "batch has a single row, and BatchNorm cannot normalise over one row. Set "
        f"{setting('drop_last')} True, another {size}{more}"
    )
