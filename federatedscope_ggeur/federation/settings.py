"""The settings that client and server get before they start, and those they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.geometry import Space
from federatedscope_ggeur.methods import LocalHooks, Method
from federatedscope_ggeur.models import (
    CPU,
    Known,
    Model,
    ModelSettings,
    OtherModel,
    build_model,
)

from .demands import Demands
from .optimizers import OptimizerSettings, Schedule
from .wire.schema import EACH_CLASS, MessageSchema, StatisticsForm


class Pull(Protocol):
    """A pull of a model in training."""

    @property
    def field(self) -> str:
        """The setting that asks for it."""

    def added(self, hooks: LocalHooks, model: Model, space: Space) -> LocalHooks:
        """Add the pull to a method's hooks, for a `model` trained in `space`."""


class Mix(Protocol):
    """A mixture of a trained head and of what is known of the classes."""

    def mixed(self, model: Model, params: Tensor) -> Tensor:
        """Mix the trained parameters [P], which are for raw embeddings."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """What an extra has prepared, see `extras.Preparation`.

    Attributes
    ----------
    key : str
        Identifies it. It must be equal on all sides.
    known : Known or None
        For the closed form.
    other : OtherModel or None
        The model in place of a head.
    pull : Pull or None
    mix : Mix or None
        What is scored and left in place of the trained head.
    """

    key: str
    known: Known | None = None
    other: OtherModel | None = None
    pull: Pull | None = None
    mix: Mix | None = None


#: Fields of `TrainingSettings` that a run may change when it goes on.
_OF_A_ROUND = (
    "local_update_steps", "batch_or_epoch", "batch_size", "shuffle", "drop_last",
    "grad_clip",
)  # fmt: skip
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

    def as_texts(self) -> dict[str, str]:
        """What decides how a round trains, as texts by key."""
        optimizer = {"type": self.optimizer.type, "lr": self.optimizer.lr}
        section = setting("optimizer")
        values: dict[str, object] = {
            f"{section}.{name}": value
            for name, value in {**optimizer, **self.optimizer.options}.items()
        }
        for name in _OF_A_ROUND:
            values[setting(name)] = getattr(self, name)
        values["train.scheduler"] = self.schedule
        return {name: str(value) for name, value in values.items()}

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


@dataclass(frozen=True)
class Task:
    """The model that a federation trains, and the method that trains it.

    Attributes
    ----------
    num_classes, dim : int
        The number of classes C and the dimension D of embeddings.
    model : ModelSettings
    method : Method
    seed : int
        The seed of the run. It is part of the seed of every draw.
    statistics : StatisticsForm
        How class statistics travel.
    pooled_geometry : bool
        Whether GGEUR draws along one shape for all classes, not one for each class.
    space : {"raw", "standard"}
        The space of training.
    scored : ModelSettings, optional
        The kind of model that is scored and left, if it differs from the trained kind.
    counted_prototypes : bool
        Whether the prototype of a class is its mean over all clients, sent with its
        count. Each client then subtracts its own rows.
    """

    num_classes: int
    dim: int
    model: ModelSettings
    method: Method
    seed: int
    statistics: StatisticsForm = EACH_CLASS
    pooled_geometry: bool = False
    space: str = "raw"
    scored: ModelSettings | None = None
    counted_prototypes: bool = False

    @property
    def hidden_units(self) -> int:
        """Hidden units of the head that is trained; 0: it is linear."""
        return self.model.hidden_units(self.dim, self.num_classes)

    def build_model(self) -> Model:
        """Make the model to train, with its initial parameters."""
        return build_model(self.dim, self.num_classes, self.model)

    def build_scored(self, model: Model) -> Model:
        """The model to score: the trained `model`, or one of the kind `scored`."""
        if self.scored is None:
            return model
        return build_model(self.dim, self.num_classes, self.scored)

    def schema(self, model: Model) -> MessageSchema:
        """The schema by which received messages are checked."""
        return MessageSchema.of(
            model,
            self.method,
            self.statistics,
            pooled_geometry=self.pooled_geometry,
            counted_prototypes=self.counted_prototypes,
        )

    def calibration_schema(self, model: Model) -> MessageSchema:
        """The schema for class statistics of the last layer's input."""
        schema = replace(self.schema(model), statistics=self.statistics.by_class)
        return replace(schema, dim=model.classifier.in_features)


T = TypeVar("T")


@dataclass(frozen=True)
class RoleSettings:
    """The settings that client and server roles share.

    Attributes
    ----------
    task : Task
    demands : Demands
    training : TrainingSettings
        Its device is also the one on which the server scores heads. The server computes
        everything else on the CPU.
    min_samples : int
        The min-count threshold: a client sends statistics of a class only if it has at
        least this many rows of the class.
    eval_every : int
        The head is scored every `eval_every` rounds, and after the last one.
    unseen_client_num : int
        The number of clients that are only scored. They take no part in round 0 or in
        training.
    ignore_weight : bool
        Whether averages have equal weights in place of n_k.
    max_share : float
        The largest share of one client in an average of updates; 1 means no limit.
    mix : Mix, optional
        What is scored and left in place of the trained head.
    own : mapping from class to settings
        The settings of single exchanges, by the class of the settings.
    """

    task: Task
    demands: Demands
    training: TrainingSettings
    min_samples: int
    eval_every: int = 1
    unseen_client_num: int = 0
    ignore_weight: bool = False
    max_share: float = 1.0
    mix: Mix | None = None
    own: Mapping[type, Any] = field(default_factory=dict)

    @property
    def clients_keep_state(self) -> bool:
        """Whether clients keep states of the method, or one-shot heads of their own."""
        return self.task.method.keeps_state or self.demands.personal

    def of(self, kind: type[T]) -> T:
        """The settings of one exchange, which have the class `kind`."""
        return self.own[kind]

    def with_own(self, *settings: object) -> RoleSettings:
        """A copy with these settings of exchanges in place of those of their class."""
        return replace(self, own={**self.own, **{type(one): one for one in settings}})
