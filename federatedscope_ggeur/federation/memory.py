"""The memory that the augmented sets of one process may take."""

from __future__ import annotations

import torch
from torch import Tensor


class MemoryBudget:
    """Bytes that the augmented sets of one process may take together."""

    def __init__(self, limit: float):
        self._left = limit
        self._scratch = torch.empty(0)

    def reserve(self, nbytes: int) -> bool:
        """Whether `nbytes` still fit; if so they are taken."""
        if nbytes > self._left:
            return False
        self._left -= nbytes
        return True

    def scratch(self, rows: int, dim: int) -> Tensor:
        """Memory of shape (rows, dim), float32, for one set at a time to be drawn into.

        It stays the same from call to call while it is large enough.
        """
        if self._scratch.numel() < rows * dim:
            self._scratch = torch.empty(rows * dim)
        return self._scratch[: rows * dim].view(rows, dim)
