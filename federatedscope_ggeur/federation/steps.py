"""Steps: what a client does to its class statistics before they leave.

Each step has a client's side and a server's side. The package's own steps stand in
`exchanges.statistics.steps`; a plugin's are taken after the threshold, while there is a
scatter for each class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from federatedscope_ggeur.errors import PluginError
from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.settings import (
    Registry,
    Section,
    check_class,
    check_returned,
    check_section,
    is_of_plugin,
    where_of,
)

from .demands import Demands

if TYPE_CHECKING:
    from .wire import Content, Message
    from .wire.schema import MessageSchema


class Step(ABC):
    """One thing that clients do to their class statistics before these leave.

    Attributes
    ----------
    SETTINGS : type of Section
        The settings of the step; `of` reads them by ``run.of(<section>)``.
    BY_CLASS : bool
        Whether the step leaves scatters of single classes. A step that does not is left
        out for CCVR, which needs these. A plugin's step must leave them.
    TAKES_WEIGHTS : bool
        Whether the step can be taken if rows have weights.
    """

    SETTINGS: ClassVar[type[Section]] = Section
    BY_CLASS: ClassVar[bool] = True
    TAKES_WEIGHTS: ClassVar[bool] = False
    name: ClassVar[str]

    @property
    def asked_by(self) -> str:
        """What asks for the step, for messages."""
        return f"the step {self.name}"

    @classmethod
    @abstractmethod
    def of(cls, run: Demands) -> Step | None:
        """The step of a run with these facts; None if the run does without it."""

    @abstractmethod
    def leave(self, statistics: Statistics) -> Any:
        """Client: what becomes of its statistics.

        A plugin's step must keep the counts. Heads that leave rows out (`auto`, for
        example) take the client's rows as they are, whatever a step does to means.
        """

    def arrive(self, statistics: Any) -> Statistics:
        """Server: what it makes of what arrives; by default, the same.

        Scatters may have been summed over classes, or compressed, in between.
        """
        return statistics

    def taken(self, side: str, statistics: Any) -> Any:
        """What the `side` called "leave" or "arrive" makes of the statistics.

        Raises
        ------
        PluginError
            The step of a plugin returned no statistics, other counts, or means of
            another shape or with NaN.
        """
        made = getattr(self, side)(statistics)
        if is_of_plugin(type(self)):
            name = f"{side} of the step '{self.name}'"
            check_returned(name, type(self), made, Statistics)
            wanted, problem = tuple(statistics.means.shape), ""
            if not torch.equal(made.counts, statistics.counts):
                problem = "must keep the counts of classes"
            elif tuple(made.means.shape) != wanted:
                problem = (
                    f"must keep the shape {wanted} of means, but returned "
                    f"{tuple(made.means.shape)}"
                )
            elif not torch.isfinite(made.means).all():
                problem = "returned means with NaN or infinity"
            if problem:
                raise PluginError(f"{name}{where_of(type(self))} {problem}")
        return made


class Packing(Step):
    """The last step: statistics become something that has a message of its own.

    What `leave` returns has the counts of the classes as ``counts`` [C].
    """

    BY_CLASS = False

    @abstractmethod
    def write(self, packed: Any) -> Content:
        """What travels of `packed`, beside classes and counts."""

    @abstractmethod
    def read(self, message: Message, counts: Tensor, schema: MessageSchema) -> Any:
        """Read and check what `write` wrote; `counts` [C] are the rows of each class.

        Raises
        ------
        MessageError
            A field has a value that the schema does not allow.
        """


#: All steps, in the order in which a client takes them.
STEPS: Registry[type[Step]] = Registry("step", "plugins", has_sections=True)
#: The step before which those of plugins are taken.
_NEEDED = "needed"


def register_step(name: str) -> Callable[[type[Step]], type[Step]]:
    """A decorator that registers a subclass of `Step` under `name`.

    A plugin's step is taken only in runs whose ``ggeur.plugins`` name its module.
    Clients and server take their sides each by their own settings, so settings that the
    server's side needs should be `shared`.

    Raises
    ------
    TypeError
        The class is not a `Step`, lacks `of` or `leave`, or leaves no scatters of
        single classes. Or its settings are not a `Section` with the prefix
        ``"<name>."``.
    ValueError
        The name is taken.
    """

    STEPS.require_name(name)

    def register(part: type[Step]) -> type[Step]:
        check_class(f"the step '{name}'", part, Step, ("of", "leave"))
        check_section(f"the step '{name}'", name, part.SETTINGS)
        if not is_of_plugin(part):
            return STEPS.add(name, part)
        if not part.BY_CLASS:
            raise TypeError(
                f"the step '{name}' must leave scatters of single classes (BY_CLASS)"
            )
        return STEPS.add(name, part, _NEEDED)

    return register


def steps_of(run: Demands) -> tuple[Step, ...]:
    """The steps of a run, in the order in which a client takes them."""
    made = (part.of(run) for part in STEPS.allowed(run.plugins))
    return tuple(step for step in made if step is not None)


def plugin_steps(run: Demands) -> list[str]:
    """The names of the steps of a run that are of plugins."""
    return [step.name for step in steps_of(run) if is_of_plugin(type(step))]
