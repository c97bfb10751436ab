"""A GPU that is not there: tensors on the CPU that are told apart by device.

Between CPU and "GPU" tensors the same holds as between those of torch: an operation
takes those of one device alone, but for numbers (tensors without dimensions), indices
and copies, and what it makes lies there as well. So plumbing can be tested, and the
numbers must be those of the CPU to the bit.
"""

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


#: What waits for the numbers of its first tensor.
_READS = {
    f"torch.Tensor.{name}"
    for name in (
        *("item", "tolist", "numpy", "nonzero", "masked_select", "__contains__"),
        *("__bool__", "__int__", "__float__", "__index__"),
    )
}


class Elsewhere(TorchFunctionMode):
    """While it is entered, `GPU` is a device.

    Attributes
    ----------
    waits : list of str
        The operations after which the CPU and a real GPU would have waited for each
        other: copies between them, but for pinned ones, and what reads a number.
    """

    def __init__(self):
        super().__init__()
        self.waits: list[str] = []
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
        if name == "torch.Tensor.pin_memory":
            return args[0]
        if name == "torch.Tensor.device.__get__":
            return GPU if self.is_there(args[0]) else function(*args)
        self._note(name, args)
        asked = kwargs.get("device")
        if asked is not None and torch.device(asked).type == "cuda":
            if name in ("torch.tensor", "torch.as_tensor"):
                self.waits.append(name)
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

    def _note(self, name: str, args) -> None:
        """Add an operation to `waits` if it reads a number of the GPU's."""
        reads = name in _READS or name == "torch.Tensor.new_tensor"
        if name == "torch.Tensor.__getitem__":
            at = args[1] if isinstance(args[1], tuple) else (args[1],)
            reads = any(isinstance(i, Tensor) and i.dtype == torch.bool for i in at)
        if reads and self.is_there(args[0]):
            self.waits.append(name)

    def _to(self, tensor, *args, copy=False, non_blocking=False, **kwargs):
        given = [*args, *kwargs.values()]
        devices = [torch.device(x) for x in given if isinstance(x, (str, torch.device))]
        rest = [x for x in given if isinstance(x, torch.dtype)]
        there = devices[0].type == "cuda" if devices else self.is_there(tensor)
        if not devices and not given:
            there = False  # Tensor.cpu
        if there != self.is_there(tensor) and not non_blocking:
            self.waits.append("torch.Tensor.to")
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
