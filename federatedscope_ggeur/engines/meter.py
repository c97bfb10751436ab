"""Measures the bytes and times of the messages that an engine carries."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.exchanges import Request, Requests
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import EVALUATE
from federatedscope_ggeur.federation.exchanges.training.exchange import TRAIN

T = TypeVar("T")


@dataclass(frozen=True)
class Traffic:
    """The bytes of one kind of message, over all clients."""

    up: int = 0
    down: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.up + other.up, self.down + other.down)


@dataclass
class Meter:
    """Measures the messages of one part of a course.

    Attributes
    ----------
    steps : mapping from client number to int
        The number of mini-batches that each client's update reports.
    rounds : int
    phases : dict from phase to Traffic
    seconds : dict from kind of request to float
        How long clients took.
    doing : dict from what clients did to float
        How long they took for what may take long; see `RequestKind.doing`.
    last : dict from kind of request to bytes
        One message from server to client.
    """

    steps: Mapping[int, int] = field(default_factory=dict)
    rounds: int = 0
    phases: dict[str, Traffic] = field(default_factory=lambda: defaultdict(Traffic))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    doing: dict[str, float] = field(default_factory=dict)
    last: dict[str, bytes] = field(default_factory=dict)
    # By kind, client and digits of the round: one answer, which stands for others.
    _sizes: dict[tuple[str, int, int], Traffic] = field(default_factory=dict)
    _answers: dict[str, bytes] = field(default_factory=dict)

    def follow(self, requests: Requests[T]) -> Requests[T]:
        """Pass requests on, and measure them."""
        replies = None
        while True:
            try:
                request = requests.send(replies)
            except StopIteration as stop:
                return stop.value
            with timed() as seconds:
                replies = yield request
            self.seconds[request.kind.name] += seconds[0]
            if request.kind.doing:
                self.doing[request.kind.doing] = self.seconds[request.kind.name]
            self._note(request, replies)

    def shown(self) -> dict[str, Traffic]:
        """The phases with at least one byte."""
        return {name: t for name, t in self.phases.items() if t != Traffic()}

    def asked(self, kind: str) -> list[int]:
        """The clients that got a request of this kind."""
        return sorted({k for name, k, _ in self._sizes if name == kind})

    def messages(self, kind: str, clients: list[int], number: int) -> Traffic:
        """The bytes of requests and answers of this kind, as if in round `number`."""
        return sum((self._size(kind, k, number) for k in clients), Traffic())

    def _size(self, kind: str, client: int, number: int) -> Traffic:
        key = (kind, client, len(str(number)))
        if key not in self._sizes:  # not drawn so far: like one that was
            down, up = self.last[kind], self._answers[kind]
            self._sizes[key] = self._resized(client, number, down, up)
        return self._sizes[key]

    def _resized(self, client: int, number: int, down: bytes, up: bytes) -> Traffic:
        numbers = {"client": client, "round": number, "round_number": number}
        if client in self.steps:
            numbers["steps"] = self.steps[client]
        return Traffic(wire.size_with(up, numbers), wire.size_with(down, numbers))

    def _note(self, request: Request, replies) -> None:
        kind = request.kind
        for k, parts in request.parts.items():
            for payload, part in zip(kind.parts, parts):
                name = _phase(payload.__name__) if len(kind.parts) > 1 else kind.name
                self.phases[name] += Traffic(down=len(part))
            up = sum(map(len, replies[k]))
            self.phases[kind.name] += Traffic(up=up)
            if kind in (TRAIN, EVALUATE) and self.rounds:
                self.last[kind.name], self._answers[kind.name] = parts[0], replies[k][0]
                for digits in range(len(str(self.rounds))):
                    size = self._resized(k, 10**digits, parts[0], replies[k][0])
                    self._sizes[kind.name, k, digits + 1] = size


def _phase(name: str) -> str:
    """The phase of a payload's class: ``init_broadcast`` for ``InitBroadcast``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@contextmanager
def timed() -> Iterator[list[float]]:
    """A context that measures seconds; its list has them after the end."""
    seconds: list[float] = []
    started = time.perf_counter()
    yield seconds
    seconds.append(time.perf_counter() - started)
