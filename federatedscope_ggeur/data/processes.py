"""Processes that stay alive and work through tasks, and a thread that runs ahead."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import numpy as np
import torch

from federatedscope_ggeur.machine import end_processes, start_method

T = TypeVar("T")

#: Tasks that a process holds: the one it works on, and the next.
_HELD = 2
#: Tasks, for each process, that may be done before the first that is not.
_WINDOW = 4
#: Seconds after which a process looks whether its parent is still there.
_LOOK = 5.0
#: Seconds in which a process must end by itself.
_GRACE = 5.0


class ProcessDied(Exception):
    """A process ended before its tasks were done."""


class Processes:
    """Processes that call a function on tasks. They stay until `close`.

    They start when they are first needed. The function of a later `run` is sent to
    them; if it cannot be sent, other processes take their place.
    """

    def __init__(self):
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []

    def run(
        self,
        function: Callable[[Any], T],
        tasks: Sequence[Any],
        number: int,
        inherited: bool = False,
    ) -> Iterator[T]:
        """Call `function` on each task, in `number` processes, and yield the results in
        order.

        Parameters
        ----------
        function : callable (task) -> result
            Its results are pickled. Arrays in them are not copied for that.
        tasks : sequence
        number : int
            At least 1. Of the processes of earlier runs, all take part.
        inherited : bool
            Whether to start other processes, which then share this process's memory
            with the function (not on Windows and macOS).

        Raises
        ------
        ProcessDied
            A process ended.
        """
        data = None if inherited else pickled(function)
        try:
            for pipe in self._pipes:
                pipe.send_bytes(data or b"")
        except OSError:  # a process has ended meanwhile
            data = None
        if data is None:
            self.close()
        while len(self._pipes) < number:
            self._start(function)
        return self._results(tasks)

    def _start(self, function: Callable) -> None:
        context = multiprocessing.get_context(start_method())
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, function), daemon=True)
        process.start()
        theirs.close()  # so that the end of the process ends the pipe
        self._processes.append(process)
        self._pipes.append(ours)

    def _results(self, tasks: Sequence) -> Iterator:
        held = dict.fromkeys(self._pipes, 0)
        results: dict[int, Any] = {}
        sent = done = 0
        try:
            while done < len(tasks):
                most = min(len(tasks), done + _WINDOW * len(held))
                while sent < most and min(held.values()) < _HELD:
                    pipe = min(held, key=held.__getitem__)
                    pipe.send((sent, tasks[sent]))
                    held[pipe] += 1
                    sent += 1
                for pipe in wait([pipe for pipe, count in held.items() if count]):
                    index, result = _received(pipe)
                    results[index] = result
                    held[pipe] -= 1
                while done in results:
                    yield results.pop(done)
                    done += 1
        except (EOFError, OSError) as error:
            raise ProcessDied from error
        finally:
            if done < len(tasks):  # some still work on tasks that nobody wants
                self.close()

    def close(self) -> None:
        """End the processes."""
        end_processes(self._processes, _GRACE)
        for pipe in self._pipes:
            pipe.close()
        self._processes, self._pipes = [], []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *raised) -> None:
        self.close()


def pickled(function: Callable) -> bytes | None:
    """`function` as it is sent to a process; None if it cannot be."""
    try:
        return pickle.dumps(function, protocol=5)
    except Exception:  # e.g. a closure or an open file
        return None


def _work(pipe: Connection, function: Callable) -> None:
    """Work through the tasks that come through a pipe, until it ends."""
    # Ctrl-C reaches all processes, and the main process ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a study's processes raise instead
    torch.set_num_threads(1)
    parent = os.getppid()
    with suppress(EOFError, OSError):
        while True:
            while not pipe.poll(_LOOK):
                if os.getppid() != parent:
                    return
            message = pickle.loads(pipe.recv_bytes())
            if not isinstance(message, tuple):
                function = message
                continue
            index, task = message
            buffers: list[pickle.PickleBuffer] = []
            result = function(task)
            data = pickle.dumps(result, protocol=5, buffer_callback=buffers.append)
            parts = [buffer.raw() for buffer in buffers]
            pipe.send((index, data, [part.nbytes for part in parts]))
            for part in parts:
                pipe.send_bytes(part)


def _received(pipe: Connection) -> tuple[int, Any]:
    """The number of a task, and its result."""
    index, data, sizes = pipe.recv()
    buffers = [np.empty(size, np.uint8) for size in sizes]
    for buffer in buffers:
        pipe.recv_bytes_into(buffer)
    return index, pickle.loads(data, buffers=buffers)


_END = object()


def ahead(items: Generator[T, None, None], depth: int) -> Iterator[T]:
    """Yield `items`, which a thread makes up to `depth` items ahead."""
    with ThreadPoolExecutor(1) as pool:
        made = deque(pool.submit(next, items, _END) for _ in range(depth + 1))
        try:
            while (item := made.popleft().result()) is not _END:
                made.append(pool.submit(next, items, _END))
                yield item  # type: ignore[misc]
        finally:
            for one in made:
                one.cancel()
            pool.submit(items.close)
