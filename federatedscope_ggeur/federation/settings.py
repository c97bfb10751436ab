"""What the roles are told before they start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.task import Task
from federatedscope_ggeur.federation.text import TextMix
from federatedscope_ggeur.federation.training_settings import TrainingSettings

T = TypeVar("T")


@dataclass(frozen=True)
class RoleSettings:
    """What clients and server are told.

    Attributes
    ----------
    task : Task
    demands : Demands
    training : TrainingSettings
        The server scores the head on its device, too, and computes all else on the CPU.
    min_samples : int
        The min-count threshold: what a client tells of a class needs so many rows.
    eval_every : int
        The head is scored every so many rounds, and after the last one.
    unseen_client_num : int
        Clients that are only scored: they take no part in round 0 or in training.
    ignore_weight : bool
        Average with equal weights in place of n_k.
    max_share : float
        The largest share that one client has of an average of updates; 1: no limit.
    text_mix : TextMix, optional
        The head that is scored and left lies between the trained and the zero-shot one.
    own : mapping from class to settings
        The settings of single exchanges, by their class.
    """

    task: Task
    demands: Demands
    training: TrainingSettings
    min_samples: int
    eval_every: int = 1
    unseen_client_num: int = 0
    ignore_weight: bool = False
    max_share: float = 1.0
    text_mix: TextMix | None = None
    own: Mapping[type, Any] = field(default_factory=dict)

    def of(self, kind: type[T]) -> T:
        """The settings of an exchange, of the class `kind`."""
        return self.own[kind]

    def with_own(self, *settings: object) -> RoleSettings:
        """A copy with these settings of exchanges, which replace others of a class."""
        return replace(self, own={**self.own, **{type(one): one for one in settings}})
