"""What a client declares of its data when it joins, and bounds on what it may send."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.geometry import LARGEST_EMBEDDING

#: What rows are for, in FederatedScope's words.
SPLITS = ("train", "val", "test")
# Room for what rounding, and compression, add to a norm or a trace.
_SLACK = 1.05
_CHUNK = 4096


@dataclass(frozen=True)
class Declared:
    """Rows by split, and how long an embedding is.

    Attributes
    ----------
    train, val, test : int
        Rows.
    norm : float
        A power of two that no training row exceeds; 0 without rows. It tells no more
        than that of a single row.
    """

    train: int = 0
    val: int = 0
    test: int = 0
    norm: float = 0.0

    @classmethod
    def of(cls, train: Tensor, val: int, test: int) -> Declared:
        """Of training rows [n, D] and the numbers of the others."""
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
        """Read what `numbers` wrote. Raises `MessageError` if it is missing."""
        train, val, test = (message.integer(f"rows_{name}") for name in SPLITS)
        largest = 2.0 * LARGEST_EMBEDDING * 2**20
        return cls(train, val, test, message.number("norm", largest))

    @property
    def longest(self) -> float:
        """The longest that a mean of rows can be, after rounding and compression."""
        return self.norm * _SLACK

    def check_rows(self, client: int, field: str, rows: float, declared: int) -> None:
        """Raise `MessageError` if an answer has more rows than were declared."""
        if rows > declared:
            raise MessageError(
                f"{rows:g} rows, but it declared {declared} when it joined",
                field=field,
                sender=f"client {client}",
            )

    def refuse_norm(self, client: int, field: str, what: str, norm: float) -> None:
        """Raise `MessageError` for a vector longer than the declared norm."""
        raise MessageError(
            f"{what} has the norm {norm:.3g}, but when it joined it declared that no "
            f"row has one above {self.norm:g}",
            field=field,
            sender=f"client {client}",
        )


#: Of the clients that joined; empty if all are in this process.
Declarations = Mapping[int, Declared]
