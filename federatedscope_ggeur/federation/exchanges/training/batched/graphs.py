"""Steps of fixed shapes: replayed as CUDA graphs on a GPU, run as they are elsewhere.

A step is a handful of small kernels. To launch them one by one takes longer than their
work. A graph launches those of many steps at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType

import torch
from torch import Tensor


@cache
def fused_kernels(device: torch.device) -> ModuleType | None:
    """The module `kernels`, if Triton can compile it for the device."""
    if not _can_compile(device):
        return None
    try:
        from . import kernels
    except ImportError:
        return None
    return kernels


def _can_compile(device: torch.device) -> bool:
    if os.environ.get("TRITON_INTERPRET") == "1":
        return True
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (7, 0)


#: Steps of the longest graph, a power of two.
_LONGEST = 64


class Steps:
    """Takes steps whose inputs have fixed shapes.

    Parameters
    ----------
    step : callable
        Takes one step. It gets one slice of each input, reads and changes tensors that
        keep their places, and draws nothing.
    changed : sequence of Tensor
        The tensors that a step changes. Warming up changes them, too; they are put
        back.
    like : sequence of Tensor
        Inputs [steps, ...] of the right shapes, types and device.
    captures : bool
        Whether to capture graphs on a GPU.
    """

    def __init__(
        self,
        step: Callable[..., None],
        changed: Sequence[Tensor],
        like: Sequence[Tensor],
        captures: bool = True,
    ):
        self._step, self._changed = step, changed
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._inputs: list[Tensor] = []
        if captures and like[0].is_cuda:
            self._inputs = [t.new_zeros((_LONGEST, *t.shape[1:])) for t in like]

    def run(self, *inputs: Tensor) -> None:
        """Take a step on each slice of `inputs` [steps, ...]."""
        if not self._inputs:
            for one in zip(*inputs):
                self._step(*one)
            return
        done, steps, length = 0, inputs[0].shape[0], _LONGEST
        while done < steps:
            while length > steps - done:
                length //= 2
            for kept, given in zip(self._inputs, inputs):
                kept[:length].copy_(given[done : done + length])
            self._graph(length).replay()
            done += length

    def _graph(self, length: int) -> torch.cuda.CUDAGraph:
        if length not in self._graphs:
            self._graphs[length] = self._captured(length)
        return self._graphs[length]

    def _captured(self, length: int) -> torch.cuda.CUDAGraph:
        slices = [[kept[i] for kept in self._inputs] for i in range(length)]
        if not self._graphs:
            self._warm_up(slices[0])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for one in slices:
                self._step(*one)
        return graph

    def _warm_up(self, inputs: Sequence[Tensor]) -> None:
        """Compile kernels and make the libraries' own memory, before a capture."""
        before = [tensor.clone() for tensor in self._changed]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._step(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        for tensor, kept in zip(self._changed, before):
            tensor.copy_(kept)
