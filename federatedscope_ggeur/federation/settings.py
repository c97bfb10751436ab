"""The settings that client and server roles get before they start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from .demands import Demands
from .prepared import Mix
from .task import Task
from .training_settings import TrainingSettings

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
