"""Facts about messages that both sides of a federation know in advance.

A client declares facts about its data when it joins. Limits of its messages follow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.geometry import LARGEST_EMBEDDING, Statistics
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.methods.contexts import Specs
from federatedscope_ggeur.models import NEEDS, Model, num_parameters

from .. import wire
from ..steps import Packing, Step


@dataclass(frozen=True)
class StatisticsForm:
    """How a client's statistics travel.

    Attributes
    ----------
    content : {"class", "pooled", "means"}
        The scatters that travel beside counts and means: one for each class, one summed
        over classes, or none. `NEEDS` of closed forms has the same words.
    exact : bool
        Whether scatters travel in float64, not float32, so that they can be inverted.
    weighted : bool
        Whether rows have weights, and their sums travel beside the counts.
    steps : tuple of Step
        What the client does to its statistics before they leave, in this order. The
        server takes its sides of the steps in the opposite order.
    """

    content: str = "class"
    exact: bool = False
    weighted: bool = False
    steps: tuple[Step, ...] = ()

    def __post_init__(self):
        if self.content not in NEEDS:
            raise ValueError(f"content must be one of {NEEDS}, got {self.content!r}")
        summing = [step.name for step in self.steps if not step.BY_CLASS]
        if summing and self.content == "class":
            raise ValueError(
                f"the step {summing[0]} needs the content 'pooled' or 'means'; it "
                "leaves no scatters of single classes"
            )

    @property
    def packing(self) -> Packing | None:
        """The last step if it makes a message of its own; None otherwise."""
        last = self.steps[-1] if self.steps else None
        return last if isinstance(last, Packing) else None

    @property
    def by_class(self) -> StatisticsForm:
        """A copy of this form with a whole scatter for each class."""
        steps = tuple(step for step in self.steps if step.BY_CLASS)
        return StatisticsForm("class", self.exact, steps=steps)

    def leave(self, statistics: Statistics) -> Any:
        """Take the client's sides of the steps: what travels of its statistics."""
        for step in self.steps:
            statistics = step.taken("leave", statistics)
        return statistics

    def arrive(self, travelled: Any) -> Statistics:
        """Take the server's sides of the steps: the statistics that it merges."""
        for step in reversed(self.steps):
            travelled = step.taken("arrive", travelled)
        return travelled


#: The paper's form.
EACH_CLASS = StatisticsForm()


@dataclass(frozen=True)
class MessageSchema:
    """The facts by which received messages are checked.

    Attributes
    ----------
    num_classes : int
    dim : int
        Of the embeddings.
    num_parameters : int or None
        The number of weights that travel; None if this number varies.
    statistics : StatisticsForm
    pooled_geometry : bool
        Whether the server sends one shape for all classes, not one for each.
    counted_prototypes : bool
        Whether prototypes are class means over all clients and come with counts.
    """

    num_classes: int
    dim: int
    num_parameters: int | None
    statistics: StatisticsForm = EACH_CLASS
    pooled_geometry: bool = False
    counted_prototypes: bool = False

    @classmethod
    def of(
        cls,
        model: Model,
        method: Method,
        statistics: StatisticsForm,
        pooled_geometry: bool = False,
        counted_prototypes: bool = False,
    ) -> MessageSchema:
        """The schema of a federation that trains `model` by `method`."""
        size: int | None = num_parameters(model) if method.federated else 0
        if method.federated and not model.fixed_size:
            size = None
        return cls(
            num_classes=model.num_classes,
            dim=model.in_features,
            num_parameters=size,
            statistics=statistics,
            pooled_geometry=pooled_geometry,
            counted_prototypes=counted_prototypes,
        )

    @property
    def no_statistics(self) -> Statistics:
        """Empty statistics of the kind that travels."""
        content = self.statistics.content
        return Statistics.empty(self.num_classes, self.dim, content)


#: What rows are for, in FederatedScope's words.
SPLITS = ("train", "val", "test")
# The tolerance for what rounding and compression add to a norm or a trace.
_SLACK = 1.05
_CHUNK = 4096


class Declared(wire.Fields):
    """The numbers of rows that a client declares, and a bound on embedding norms.

    Attributes
    ----------
    train, val, test : int
        The number of rows in each split.
    norm : float
        A power of two that is at least the norm of every training row; 0 without rows.
        It reveals nothing else about a single row.
    """

    train: int = wire.integer(name="rows_train", default=0)
    val: int = wire.integer(name="rows_val", default=0)
    test: int = wire.integer(name="rows_test", default=0)
    norm: float = wire.number(2.0 * LARGEST_EMBEDDING * 2**20, default=0.0)

    @classmethod
    def of(cls, train: Tensor, val: int, test: int) -> Declared:
        """Declare training rows [n, D] and the numbers of validation and test rows."""
        longest = 0.0
        for rows in train.split(_CHUNK):
            longest = max([longest, *rows.double().norm(dim=1).tolist()])
        norm = 2.0 ** math.ceil(math.log2(longest)) if longest > 0 else 0.0
        return cls(len(train), val, test, norm)

    @property
    def longest(self) -> float:
        """The largest norm of a mean of rows, after rounding and compression."""
        return self.norm * _SLACK

    def check_rows(self, client: int, field: str, rows: float, declared: int) -> None:
        """Raise `MessageError` if an answer has more rows than the client declared."""
        if rows > declared:
            raise MessageError(
                f"{rows:g} rows, but the client declared {declared} when it joined",
                field=field,
                sender=f"client {client}",
            )

    def check_means(self, client: int, field: str, means: Tensor) -> None:
        """Raise `MessageError` if a class mean [C, D] exceeds the declared norm."""
        norms = means.norm(dim=1)
        if len(norms) and float(norms.max()) > self.longest:
            c = int(norms.argmax())
            self.refuse_norm(client, field, f"the mean of class {c}", float(norms[c]))

    def refuse_norm(self, client: int, field: str, what: str, norm: float) -> None:
        """Raise `MessageError` for a vector whose norm exceeds the declared one."""
        raise MessageError(
            f"{what} has the norm {norm:.3g}, but the client declared that no row "
            f"has a norm above {self.norm:g}",
            field=field,
            sender=f"client {client}",
        )


#: Of the clients that joined; empty if all are in this process.
Declarations = Mapping[int, Declared]


#: Bytes beside tensors: the frame of safetensors, numbers, texts. A message without
#: tensors fits in.
PLAIN = 64 * 1024


def of_tensors(numbers: int | None, specs: Specs) -> int | None:
    """The size in bytes of the longest message with weights and tensors of a method.

    `numbers` counts the weights. The result is None if there is no limit.
    """
    if numbers is None:
        return None
    size = PLAIN + 4 * numbers
    for spec in specs.values():
        item = torch.empty(0, dtype=spec.dtype).element_size()
        for length in spec.shape:
            if length is None:
                return None
            item *= length
        size += item
    return size
