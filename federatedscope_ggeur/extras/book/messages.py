"""The messages of a book: the client's statistics, and the server's receipt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.schema import MessageSchema

from .grid import Grid, GridStatistics

I64 = torch.int64
_TENSORS = ("exponents", "classes", "counts", "sums", "high", "low")


@dataclass(frozen=True)
class BookUpload:
    """Round 0, client to server: whole-number statistics above the min-count threshold.

    Attributes
    ----------
    client : int
    domain : str
    statistics : GridStatistics
    """

    client: int
    domain: str
    statistics: GridStatistics

    def to_bytes(self) -> bytes:
        exponents = np.array(self.statistics.grid.exponents, dtype=np.int64)
        arrays = {"exponents": exponents, **self.statistics.arrays()}
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        numbers = {"client": self.client, "domain": self.domain}
        return wire.pack("book_statistics", numbers, tensors)

    @classmethod
    def from_bytes(cls, data: bytes, schema: MessageSchema, sender: str) -> BookUpload:
        message = wire.unpack(data, "book_statistics", sender)
        message.only(_TENSORS)
        size, dim = schema.num_classes, schema.dim
        labels = message.labels("classes", size, distinct=True)
        counts = message.tensor("counts", I64, (len(labels),))
        if ((counts <= 0) | (counts > wire.LARGEST)).any():
            raise message.refuse("counts", f"counts must lie in 1..{wire.LARGEST}")
        grid = Grid(tuple(message.tensor("exponents", I64, (dim,)).tolist()))
        triangle = (dim * (dim + 1) // 2,)
        tensors = {
            "classes": labels,
            "counts": counts,
            "sums": message.tensor("sums", I64, (len(labels), dim)),
            "high": message.tensor("high", I64, triangle),
            "low": message.tensor("low", I64, triangle),
        }
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        try:
            whole = GridStatistics.of_arrays(size, grid, arrays)
        except StatisticsError as error:
            raise message.refuse("sums", str(error)) from error
        return cls(message.client(), message.text("domain"), whole)


@dataclass(frozen=True)
class BookReceipt:
    """Round 0, server to client: a receipt with the signed end of the book's chain.

    Attributes
    ----------
    text : str
        The receipt, as JSON.
    """

    text: str

    def to_bytes(self) -> bytes:
        return wire.pack("book_receipt", {"text": self.text}, {})

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str = "the server"
    ) -> BookReceipt:
        message = wire.unpack(data, "book_receipt", sender)
        message.only(())
        return cls(message.text("text"))
