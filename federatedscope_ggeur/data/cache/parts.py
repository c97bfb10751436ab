"""Parts of an unfinished cache entry. After an interruption the next call uses them."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from federatedscope_ggeur.data.cache.files import (
    DamagedError,
    read_tensors,
    write_tensors,
)
from federatedscope_ggeur.printable import get_logger

logger = get_logger(__name__)

#: A part is written after this many rows, or after this many seconds.
PART_ROWS, PART_SECONDS = 2048, 60.0


class Parts:
    """The features of an unfinished entry, in parts of consecutive rows.

    Parameters
    ----------
    folder : Path
        The folder of the parts, with one file for each. It belongs to this entry alone.
    key : str
        The key of the entry. Parts of another entry are not used.
    dtype : torch.dtype
        The type that features are stored in.
    """

    def __init__(self, folder: Path, key: str, dtype: torch.dtype):
        self._folder, self._key, self.dtype = folder, key, dtype
        self._waiting: list[Tensor] = []
        self._written = time.monotonic()
        self.rows = sum(len(part) for part in self._read())

    def add(self, features: Tensor) -> None:
        """Append rows. They are written once enough rows wait, or by `flush`."""
        self._waiting.append(features.to(self.dtype))
        waiting = sum(map(len, self._waiting))
        if waiting >= PART_ROWS or time.monotonic() - self._written >= PART_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write all rows that wait."""
        if self._waiting:
            part = torch.cat(self._waiting)
            path = self._folder / f"{self.rows:09d}.safetensors"
            write_tensors(path, {"features": part}, {"key": self._key})
            self.rows += len(part)
            self._waiting = []
        self._written = time.monotonic()

    def whole(self) -> Tensor:
        """All rows [n, D] that were written. There must be at least one."""
        return torch.cat(list(self._read()))

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self) -> Iterator[Tensor]:
        """Yield the parts in order, up to the first one that is missing or damaged."""
        row = 0
        while True:
            path = self._folder / f"{row:09d}.safetensors"
            try:
                tensors, header = read_tensors(path)
                if header.get("key") != self._key:
                    raise DamagedError("the file belongs to another entry")
            except FileNotFoundError:
                return
            except DamagedError as error:
                logger.warning(
                    "the cache file %s is damaged (%s); its rows and all later rows "
                    "are made again",
                    path,
                    error,
                )
                with contextlib.suppress(OSError):
                    path.unlink()
                return
            row += len(tensors["features"])
            yield tensors["features"]
