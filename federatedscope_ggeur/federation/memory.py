"""The memory that the clients of one process share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from federatedscope_ggeur.geometry import Space
from federatedscope_ggeur.models import Model, ModelSettings, build_model

from .settings import Task
from .wire.schema import MessageSchema


@dataclass(frozen=True)
class Modules:
    """The model and scored model that the clients of a task share; see `Client`."""

    model: Model
    scored_model: Model
    schema: MessageSchema
    scored_schema: MessageSchema


class MemoryBudget:
    """The memory that the clients of one process share.

    It limits the bytes that their augmented sets take together. It also holds the
    modules that they train and score in turn.
    """

    def __init__(self, limit: float):
        self._left = limit
        self._scratch: dict[torch.device, Tensor] = {}
        self._models: dict[tuple, Model] = {}
        self._modules: tuple[Task, Modules] | None = None
        self._raw: Space | None = None
        self._frozen: tuple[Model, Tensor, Model] | None = None

    def model(self, task: Task) -> Model:
        """The module of `task` that all clients share, with the weights last loaded."""
        return self._model(task, task.model)

    def modules(self, task: Task, device: torch.device) -> Modules:
        """The modules of `task` on a device, which all clients share."""
        if self._modules is None or self._modules[0] is not task:
            model = scored = self.model(task).to(device)
            if task.scored is not None:
                scored = self._model(task, task.scored).to(device)
            schemas = task.schema(model), task.schema(scored)
            self._modules = task, Modules(model, scored, *schemas)
        return self._modules[1]

    def raw(self, dim: int) -> Space:
        """The raw space of dimension `dim`, one object for all clients."""
        if self._raw is None or self._raw.dim != dim:
            self._raw = Space.raw(dim)
        return self._raw

    def _model(self, task: Task, kind: ModelSettings) -> Model:
        key = task.dim, task.num_classes, kind
        if key not in self._models:
            self._models[key] = build_model(*key)
        return self._models[key]

    def frozen(self, model: Model, params: Tensor) -> Model:
        """The model with the weights `params`; the last result is kept for reuse."""
        kept = self._frozen
        if kept is None or kept[0] is not model or kept[1] is not params:
            kept = self._frozen = model, params, model.at(params)
        return kept[2]

    def divide(self, number: int) -> None:
        """Cut the remaining budget to one of `number` equal shares."""
        self._left /= number

    @property
    def left(self) -> float:
        """The bytes that are not reserved yet."""
        return self._left

    def reserve(self, nbytes: int) -> bool:
        """Reserve `nbytes` if they fit; returns whether they do."""
        if nbytes > self._left:
            return False
        self._left -= nbytes
        return True

    def scratch(self, rows: int, dim: int, device: torch.device) -> Tensor:
        """Shared memory of shape (rows, dim), float32, for sets drawn for one round.

        Calls return the same memory as long as it is large enough.
        """
        held = self._scratch.get(device)
        if held is None or held.numel() < rows * dim:
            self._scratch.pop(device, None)
            held = torch.empty(rows * dim, dtype=torch.float32, device=device)
            self._scratch[device] = held
        return held[: rows * dim].view(rows, dim)
