"""What a client declares about its data when it joins, and the limits that follow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.geometry import LARGEST_EMBEDDING

from .. import wire

#: What rows are for, in FederatedScope's words.
SPLITS = ("train", "val", "test")
# The tolerance for what rounding and compression add to a norm or a trace.
_SLACK = 1.05
_CHUNK = 4096


@dataclass(frozen=True)
class Declared:
    """The numbers of rows that a client declares, and a bound on embedding norms.

    Attributes
    ----------
    train, val, test : int
        The number of rows in each split.
    norm : float
        A power of two that is at least the norm of every training row; 0 without rows.
        It reveals nothing else about a single row.
    """

    train: int = 0
    val: int = 0
    test: int = 0
    norm: float = 0.0

    @classmethod
    def of(cls, train: Tensor, val: int, test: int) -> Declared:
        """Declare training rows [n, D] and the numbers of validation and test rows."""
        longest = 0.0
        for rows in train.split(_CHUNK):
            longest = max([longest, *rows.double().norm(dim=1).tolist()])
        norm = 2.0 ** math.ceil(math.log2(longest)) if longest > 0 else 0.0
        return cls(len(train), val, test, norm)

    def numbers(self) -> dict[str, float]:
        """The fields as plain values for a message's header."""
        rows = {f"rows_{name}": getattr(self, name) for name in SPLITS}
        return {**rows, "norm": self.norm}

    @classmethod
    def of_message(cls, message: wire.Message) -> Declared:
        """Read the fields that `numbers` wrote; raise `MessageError` if one lacks."""
        train, val, test = (message.integer(f"rows_{name}") for name in SPLITS)
        largest = 2.0 * LARGEST_EMBEDDING * 2**20
        return cls(train, val, test, message.number("norm", largest))

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
