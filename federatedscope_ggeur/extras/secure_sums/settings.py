"""The settings of secure sums, which server and clients share.

What clients may add under the masks in place of their exact statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from torch import Tensor

from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.base import RunFacts
from federatedscope_ggeur.reporting import Privacy

from .limits import largest_fraction_bits
from .manifest import SumKeys

#: The stages that a summand may have.
OTHER_STAGES = ("moments", "spread")


class Adder(Protocol):
    """One client's side of a summand."""

    def charge(self, session: bytes, stage: str) -> None:
        """Note that the vector of a stage is about to leave.

        Raises
        ------
        GGEURError
            It must not leave.
        """

    def vector(self, stage: str, clients: int, centre: Tensor) -> np.ndarray:
        """The client's vector of a stage: int64 [length]."""


class SummandSide(Protocol):
    """The server's side of a summand, over one session.

    Attributes
    ----------
    origin : Tensor of shape (D,) or (0,), float32
        What the request of the next stage carries.
    """

    origin: Tensor

    def end(self, stage: str, total: np.ndarray, most_rows: int) -> str:
        """Take the total of a stage: int64 [length]. Returns what is wrong, or ""."""

    def take(self, course: Any, roster: Iterable[int]) -> None:
        """Pass on the totals of the clients in `roster`, after the last stage."""


class Summand(Protocol):
    """Vectors that clients add in place of their statistics, in stages of their own.

    Attributes
    ----------
    STAGES : tuple of str
        Some of `OTHER_STAGES`.
    AFTER_LOSS : str
        What an answer that is missing means for the other clients.
    """

    STAGES: ClassVar[tuple[str, ...]]
    AFTER_LOSS: ClassVar[str]

    @classmethod
    def is_due(cls, run: Demands) -> bool:
        """Whether a run with secure sums adds these vectors."""

    @classmethod
    def of(cls, run: RunFacts) -> Summand:
        """The summand of a run in which it is due."""

    @staticmethod
    def privacy(before: Privacy, keys: str, by_server: bool) -> Privacy:
        """The privacy of a run: `before`, with what the masks change.

        `keys` says in words how keys come, and `by_server` whether the server can make
        them up.
        """

    def length(self, stage: str) -> int:
        """How many numbers a vector has."""

    def problem_with(self, roster: Sequence[int]) -> str:
        """Why a client must refuse this roster; "" if it need not."""

    def of_client(self, number: int, features: Tensor, labels: Tensor) -> Adder:
        """A client's side, with its rows [n, D] and labels [n]."""

    def totals(self, clients: int) -> SummandSide:
        """The server's side, for a session with this number of clients."""


P = TypeVar("P")
_SUMMANDS: list[type[Summand]] = []


def register_summand(part: type[P]) -> type[P]:
    """A decorator that registers a `Summand`."""
    _SUMMANDS.append(part)  # type: ignore[arg-type]
    return part


def summand_of(run: Demands) -> type[Summand] | None:
    """The summand of a run with secure sums; None if clients add exact statistics."""
    return next((part for part in _SUMMANDS if part.is_due(run)), None)


#: The stages, in order; each is one sum.
COUNTS, MEANS, POOLED = STAGES = ("counts", "means", "pooled")
#: The stages of all sums.
ALL_STAGES = (*STAGES, *OTHER_STAGES)


class SumSettings(SumKeys):
    """The settings by which statistics are summed.

    Attributes
    ----------
    num_classes, dim : int
        The number of classes C and the dimension D of embeddings.
    min_samples : int
        The min-count threshold over all clients. A class with fewer rows is not summed.
    stages : tuple of str
        All of `STAGES`, or only counts and means if no scatter is needed. With a
        summand, its stages.
    agreed : bytes
        A digest of the other settings that all sides share. Every mask depends on it.
    sends_shape : bool
        Whether clients get the pooled covariance in some form.
    class_names : tuple of str
        The names of all classes, in the order of their numbers. The journal uses names.
    summand : Summand, optional
        What clients add in place of their exact statistics.
    """

    num_classes: int = 0
    dim: int = 0
    min_samples: int = 0
    stages: tuple[str, ...] = STAGES
    agreed: bytes = b""
    sends_shape: bool = False
    class_names: tuple[str, ...] = ()
    summand: Summand | None = None

    def limbs(self, stage: str) -> int:
        """How many limbs, words of 64 bits, a number has in `stage`.

        Numbers of rows, and a summand's, have one. Others have two where 64 bits are
        too few for the radius, the rows and the precision.
        """
        if stage == COUNTS or self.summand is not None:
            return 1
        most = largest_fraction_bits(self.radius, self.max_rows, limbs=1)
        return 1 if self.fraction_bits <= most else 2

    def length(self, stage: str, named: int = 0) -> int:
        """How many numbers a client's vector has in `stage`, given `named` classes."""
        if self.summand is not None:
            return self.summand.length(stage)
        if stage == COUNTS:
            return self.num_classes
        if stage == MEANS:
            return named * (self.dim + 1) + 1
        return self.dim * (self.dim + 1) // 2

    def words(self, stage: str, named: int = 0) -> int:
        """How many 64-bit words a client's vector has in `stage`."""
        return self.limbs(stage) * self.length(stage, named)

    @property
    def longest(self) -> int:
        """How many words the longest vector has."""
        return max(self.words(stage, self.num_classes) for stage in self.stages)
