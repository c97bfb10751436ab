"""A client's statistics as a file of the book."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from federatedscope_ggeur.errors import DataError, StatisticsError
from federatedscope_ggeur.files import safetensors_header

from .chain import check_types
from .grid import Grid, GridStatistics

_SALT = 32
_TYPES = {
    "number": (int,),
    "client": (int,),
    "domain": (str,),
    "since": (str,),
    "salt": (str,),
}


@dataclass(frozen=True, eq=False)
class BookEntry:
    """Statistics that one change of the book added for a client.

    Attributes
    ----------
    number : int
        The number of the link that added the entry.
    client : int
    domain : str
    since : str
        When the rows were added, UTC.
    statistics : GridStatistics
    salt : bytes
        The salt of the entry's commitment.
    """

    number: int
    client: int
    domain: str
    since: str
    statistics: GridStatistics
    salt: bytes

    @classmethod
    def new(
        cls,
        number: int,
        client: int,
        domain: str,
        since: str,
        statistics: GridStatistics,
    ) -> BookEntry:
        """Make an entry with a new salt."""
        salt = secrets.token_bytes(_SALT)
        return cls(number, client, domain, since, statistics, salt)

    @property
    def name(self) -> str:
        """The entry's file within the book."""
        return entry_name(self.number)

    @property
    def commitment(self) -> str:
        return self.statistics.digest(self.salt)

    def padded(self, num_classes: int) -> BookEntry:
        """The entry for `num_classes` classes; the added classes have no rows."""
        return replace(self, statistics=self.statistics.padded(num_classes))

    def to_bytes(self) -> bytes:
        arrays = self.statistics.arrays()
        about = {
            "number": self.number,
            "client": self.client,
            "domain": self.domain,
            "since": self.since,
            "salt": self.salt.hex(),
        }
        tensors = {n: torch.from_numpy(array.copy()) for n, array in arrays.items()}
        return save(tensors, {"entry": json.dumps(about)})

    @classmethod
    def of_bytes(
        cls, data: bytes, num_classes: int, grid: Grid, where: str
    ) -> BookEntry:
        """Read an entry from the bytes of a file; `where` names it in errors.

        Raises
        ------
        DataError
            The file is damaged.
        """
        try:
            about = json.loads(safetensors_header(data)["__metadata__"]["entry"])
            held = {name: tensor.numpy() for name, tensor in load(data).items()}
            found = GridStatistics.of_arrays(num_classes, grid, held)
            check_types(about, _TYPES)
            salt = bytes.fromhex(about.pop("salt"))
            return cls(statistics=found, salt=salt, **about)
        except (
            SafetensorError,
            StatisticsError,
            ValueError,
            KeyError,
            IndexError,
            TypeError,
        ) as error:
            raise DataError(f"'{where}' is damaged: {error}") from error


def entry_name(number: int) -> str:
    """The path within the book of the entry that link `number` added."""
    return f"entries/{number:06d}.safetensors"
