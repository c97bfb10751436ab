"""Local training, as both roles are told of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.federation.optimizers import (
    OptimizerSettings,
    Schedule,
)
from federatedscope_ggeur.models import CPU, Model

#: The least momentum of SGD on a share of the set.
SHARE_MOMENTUM = 0.9


@dataclass(frozen=True)
class TrainingSettings:
    """Local training, in FederatedScope's terms.

    Attributes
    ----------
    optimizer : OptimizerSettings
    local_update_steps : int
        Epochs or mini-batches of a round, as `batch_or_epoch` says.
    batch_or_epoch : {"batch", "epoch"}
    batch_size : int
    shuffle : bool
    drop_last : bool
        Leave out an epoch's last, smaller batch.
    grad_clip : float
        Largest norm of a gradient; none if not positive.
    device : torch.device
        The device of the arithmetic. Random draws are always made on the CPU.
    schedule : StepSchedule or CosineSchedule, optional
        How the rate changes over rounds.
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
        """The same with the rate of a round."""
        if self.schedule is None:
            return self
        rate = self.schedule.rate(self.optimizer.lr, number)
        return replace(self, optimizer=replace(self.optimizer, lr=rate))

    def batches(self, rows: int) -> int:
        """The mini-batches of a round on so many rows."""
        per_epoch = -(-self.usable(rows) // self.batch_size)
        if self.batch_or_epoch == "epoch" or per_epoch == 0:
            return self.local_update_steps * per_epoch
        return self.local_update_steps

    def reach(self, rows: int) -> float:
        """T: how far SGD goes in a round on so many rows.

        See `OptimizerSettings.reach`. It sets what a round can learn, whatever the
        number of rows.
        """
        return self.optimizer.reach(self.batches(rows))

    def on_share(self, whole: int, drawn: int) -> TrainingSettings:
        """The same for `drawn` rows in place of `whole`, with T kept.

        `SHARE_MOMENTUM` takes the first part of what the fewer steps lack, since a high
        rate overshoots; the rate takes the rest.
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
        """How many of so many rows an epoch takes."""
        return rows - rows % self.batch_size if self.drop_last else rows


def check_batches(
    model: Model, training: TrainingSettings, rows: int, client: int
) -> None:
    """Refuse a batch of one row where layers normalise over the batch.

    Raises
    ------
    ConfigError
        Of `client`, with `rows` to train on.
    """
    if not model.norm_modules or 1 not in training.batch_sizes(rows):
        return
    size = setting("batch_size")
    raise ConfigError(
        f"client {client}: with {rows} rows and {size} {training.batch_size} a batch "
        "is a single row, over which BatchNorm cannot normalise; set "
        f"{setting('drop_last')} True, another {size}, or {setting('network.norm')} "
        "group"
    )
