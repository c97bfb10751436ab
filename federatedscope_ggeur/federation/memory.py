"""The memory that the clients of one process share."""

from __future__ import annotations

import torch
from torch import Tensor

from federatedscope_ggeur.federation.task import Task
from federatedscope_ggeur.models import Model


class MemoryBudget:
    """The bytes that the augmented sets of one process may take together, and the
    module that its clients train in turn.
    """

    def __init__(self, limit: float):
        self._left = limit
        self._scratch = torch.empty(0)
        self._modules: dict[tuple, Model] = {}

    def model(self, task: Task) -> Model:
        """The module of `task`, the same for all clients. Its content belongs to the
        client that has just loaded it.
        """
        key = task.dim, task.num_classes, task.model
        if key not in self._modules:
            self._modules[key] = task.build_model()
        return self._modules[key]

    def reserve(self, nbytes: int) -> bool:
        """Whether `nbytes` still fit. If so, they are taken."""
        if nbytes > self._left:
            return False
        self._left -= nbytes
        return True

    def scratch(self, rows: int, dim: int) -> Tensor:
        """Memory of shape (rows, dim), float32, to draw one set at a time into.

        It stays the same from call to call while it is large enough.
        """
        if self._scratch.numel() < rows * dim:
            self._scratch = torch.empty(rows * dim)
        return self._scratch[: rows * dim].view(rows, dim)
