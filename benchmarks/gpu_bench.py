"""The parts of `gpu.py` share this: a device, its clock, and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch

Name = TypeVar("Name")


@dataclass
class Bench:
    """Where a part of `gpu.py` measures, and how long it may take.

    Parameters
    ----------
    device : torch.device
    small : bool
        Whether to take small sizes, which only show that the part runs.
    budget : float
        The seconds that the part may take. It asks `left` before each case.
    """

    device: torch.device
    small: bool = False
    budget: float = float("inf")
    started: float = field(default_factory=time.perf_counter)

    def left(self) -> float:
        """Seconds of the budget that are left."""
        return self.budget - (time.perf_counter() - self.started)

    def has(self, seconds: float, case: str) -> bool:
        """Whether so much time is left; if not, say from which case on none is."""
        if self.left() < seconds:
            print(f"   no time is left: {case} and what follows are left out")
            return False
        return True

    def synchronize(self) -> None:
        """Wait until the device has done everything that it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def seconds(self, function: Callable[[], object]) -> float:
        """Wall time of one call, with all that it gives the device to do."""
        self.synchronize()
        started = time.perf_counter()
        function()
        self.synchronize()
        return time.perf_counter() - started

    def in_turns(
        self, functions: dict[Name, Callable[[], object]], repeats: int
    ) -> dict[Name, list[float]]:
        """Seconds of each function, called in turn after one call that is not timed.

        It ends before `repeats` turns if the budget is spent, but never before one.
        """
        for function in functions.values():
            function()
        seconds: dict[Name, list[float]] = {name: [] for name in functions}
        for turn in range(repeats):
            if turn and self.left() < 0:
                break
            for name, function in functions.items():
                seconds[name].append(self.seconds(function))
        return seconds
