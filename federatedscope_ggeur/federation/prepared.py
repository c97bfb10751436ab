"""What a run prepares of its classes' names before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from federatedscope_ggeur.geometry import Space
from federatedscope_ggeur.methods import LocalHooks
from federatedscope_ggeur.models import Known, Model, OtherModel


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
