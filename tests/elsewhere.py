"""A GPU that is not there: tensors on the CPU that are told apart by device.

Between CPU and "GPU" tensors the same holds as between those of torch: an operation
takes those of one device alone, but for numbers (tensors without dimensions), indices
and copies, and what it makes lies there as well. So plumbing can be tested, and the
numbers must be those of the CPU to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

GPU = torch.device("cuda", 0)
#: What may have tensors of both devices; and what may where its first is on the GPU.
_ACROSS = {"torch.Tensor.copy_", "torch.Tensor.data.__set__"}
_BY_FIRST = {
    "torch.Tensor.__getitem__",
    "torch.Tensor.__setitem__",
    "torch.Tensor.index_put",
}


class MixedDevices(AssertionError):
    """An operation was given tensors of both devices."""


class Elsewhere(TorchFunctionMode):
    """While it is entered, `GPU` is a device."""

    def __init__(self):
        super().__init__()
        # By their memory, which a parameter shares with the vector that it is bound to;
        # kept, so that no other tensor gets that memory meanwhile.
        self._there: dict[int, object] = {}

    def is_there(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self._there

    def _move(self, made):
        for tensor in _tensors(made):
            storage = tensor.untyped_storage()
            if storage.data_ptr():
                self._there[storage.data_ptr()] = storage
        return made

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = resolve_name(function) or ""
        if name in ("torch.Tensor.to", "torch.Tensor.cpu"):
            return self._to(*args, **kwargs)
        if name == "torch.Tensor.device.__get__":
            return GPU if self.is_there(args[0]) else function(*args)
        asked = kwargs.get("device")
        if asked is not None and torch.device(asked).type == "cuda":
            return self._move(function(*args, **{**kwargs, "device": "cpu"}))
        drawn = kwargs.get("generator") is not None and isinstance(args[0], Tensor)
        if drawn and self.is_there(args[0]):
            raise MixedDevices(f"{name}: a generator of the CPU's")
        by_first = name in _BY_FIRST
        held = [t for t in _tensors((args, kwargs)) if t.dim() and t.numel()]
        there = [self.is_there(tensor) for tensor in held]
        mixed = any(there) and not all(there) and name not in _ACROSS
        mixed = mixed and function is not torch._has_compatible_shallow_copy_type
        if mixed and not (by_first and self.is_there(args[0])):
            raise MixedDevices(f"{name or function}: {[t.shape for t in held]} {there}")
        made = function(*args, **kwargs)
        moves = self.is_there(args[0]) if by_first else any(there)
        return self._move(made) if moves and name not in _ACROSS else made

    def _to(self, tensor, *args, copy=False, **kwargs):
        given = [*args, *kwargs.values()]
        devices = [torch.device(x) for x in given if isinstance(x, (str, torch.device))]
        rest = [x for x in given if isinstance(x, torch.dtype)]
        there = devices[0].type == "cuda" if devices else self.is_there(tensor)
        if not devices and not given:
            there = False  # Tensor.cpu
        changed = tensor.to(*rest) if rest else tensor
        if there == self.is_there(tensor) and not copy:
            return self._move(changed) if there else changed
        return self._move(changed.clone()) if there else changed.clone()


def _tensors(found) -> Iterator[Tensor]:
    if isinstance(found, Tensor):
        yield found
    elif isinstance(found, (list, tuple)):
        for part in found:
            yield from _tensors(part)
    elif isinstance(found, dict):
        yield from _tensors(list(found.values()))
