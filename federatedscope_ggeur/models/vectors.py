"""Turn the numbers of a module into one vector of shape (P + Q,), and back.

The P trainable numbers come first, in `parameters()` order. Then come the Q running
statistics, in module order: the mean and variance of each normalisation layer that has
them. (The number of batches is left out, because layers have a fixed momentum.) Heads
have no running statistics; their Q is 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

#: Numbers of the vectors that `stacks` stacks at once.
_STACKED = 1 << 17


def stacks(vectors: Sequence[Tensor]) -> Iterator[Tensor]:
    """Stack vectors of one length, some at a time: tensors of shape (m, P).

    Work on many short vectors costs less so. Of long ones each stands alone, since they
    need the memory.
    """
    together = max(1, _STACKED // max(1, vectors[0].numel())) if vectors else 1
    for first in range(0, len(vectors), together):
        yield torch.stack(list(vectors[first : first + together]))


def norm_modules(module: nn.Module) -> list[nn.Module]:
    """The layers of a module that have running statistics, in module order."""
    return [m for m in module.modules() if _running_mean(m) is not None]


def num_trainable(module: nn.Module) -> int:
    """P, the number of trainable numbers."""
    return sum(p.numel() for p in _layout(module).parameters)


def num_buffers(module: nn.Module) -> int:
    """Q, the number of running statistics."""
    if not _layout(module).norms:
        return 0
    return sum(b.numel() for b in _running_statistics(module))


def num_parameters(module: nn.Module) -> int:
    """P + Q, the number of all numbers that are sent."""
    return sum(t.numel() for t in _tensors(module))


def trainable_part(module: nn.Module, vector: Tensor) -> Tensor:
    """The first P numbers of a vector [P + Q], as a view. An empty vector stays so."""
    size = num_buffers(module)
    return vector[: max(0, len(vector) - size)] if size else vector


def to_vector(module: nn.Module) -> Tensor:
    """Copy the numbers of a module into one vector of shape (P + Q,)."""
    return torch.cat([t.detach().flatten() for t in _tensors(module)])


def load_vector(module: nn.Module, vector: Tensor) -> None:
    """Copy `vector` into the module. A vector of shape (P,) keeps the statistics."""
    if not getattr(module, "fixed_size", True):
        module.make_room_for(len(vector))  # type: ignore[operator]
    with torch.no_grad():
        for tensor, part in zip(_tensors(module), split_vector(module, vector)):
            tensor.copy_(part)


def split_vector(module: nn.Module, vector: Tensor) -> list[Tensor]:
    """Views of `vector`, (P,) or (P + Q,), in the shapes of the module's tensors."""
    shapes = [t.shape for t in _layout(module).parameters]
    sizes = [shape.numel() for shape in shapes]
    if vector.shape[0] != sum(sizes):
        running = [t.shape for t in _running_statistics(module)]
        shapes += running
        sizes += [shape.numel() for shape in running]
    parts = vector.split_with_sizes(sizes)
    return [part.view(shape) for part, shape in zip(parts, shapes)]


def bind_vector(module: nn.Module, vector: Tensor) -> None:
    """Make the module's tensors views of `vector` [P + Q].

    A change of one changes the other. So the vector always holds the newest running
    statistics.
    """
    for tensor, part in zip(_tensors(module), split_vector(module, vector)):
        tensor.data = part


def is_bound(module: nn.Module, vector: Tensor) -> bool:
    """Whether the module is still bound to `vector`; see `bind_vector`."""
    return _layout(module).parameters[0].data_ptr() == vector.data_ptr()


def named_tensors(module: nn.Module, vector: Tensor) -> dict[str, Tensor]:
    """The parts of `vector`, (P,) or (P + Q,), by their names in the state dict."""
    names = {id(t): name for name, t in module.state_dict(keep_vars=True).items()}
    parts = split_vector(module, vector)
    return {names[id(t)]: part for t, part in zip(_tensors(module), parts)}


def norm_mask(module: nn.Module) -> Tensor:
    """Which numbers belong to normalisation layers with running statistics.

    The result has shape (P + Q,), bool. It includes the layers' trainable numbers.
    """
    own = {id(t) for m in norm_modules(module) for t in (*m.parameters(False),)}
    own |= {id(t) for t in _running_statistics(module)}
    parts = [torch.full((t.numel(),), id(t) in own) for t in _tensors(module)]
    return torch.cat(parts)


def negative_variance(module: nn.Module, vector: Tensor) -> str:
    """The name of the first running variance in `vector` [P + Q] that has a negative
    number.

    The name is "" if there is none, as in an empty vector.
    """
    if not _layout(module).norms or not vector.shape[0]:
        return ""
    for name, part in named_tensors(module, vector).items():
        if name.endswith("running_var") and (part < 0).any():
            return name
    return ""


class _Layout(NamedTuple):
    """The parts of a module that do not change once it is built."""

    parameters: tuple[nn.Parameter, ...]
    norms: tuple[nn.Module, ...]


_LAYOUTS: WeakKeyDictionary[nn.Module, _Layout] = WeakKeyDictionary()


def _layout(module: nn.Module) -> _Layout:
    """The layout of a module, from a cache.

    Searching the module takes about as long as a mini-batch of a head.
    """
    layout = _LAYOUTS.get(module)
    if layout is None:
        layout = _Layout(tuple(module.parameters()), tuple(norm_modules(module)))
        if getattr(module, "fixed_size", True):
            _LAYOUTS[module] = layout
    return layout


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*_layout(module).parameters, *_running_statistics(module)]


def _running_statistics(module: nn.Module) -> list[Tensor]:
    norms = _layout(module).norms
    return [t for m in norms for t in (m.running_mean, m.running_var)]  # type: ignore[misc]


def _running_mean(module: nn.Module) -> Tensor | None:
    return module._buffers.get("running_mean")
