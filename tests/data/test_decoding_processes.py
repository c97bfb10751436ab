"""Processes that stay, and a thread that runs ahead."""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from itertools import count, islice

import numpy as np
import pytest
from own_process import PATIENCE

from federatedscope_ggeur.data.processes import ProcessDied, Processes, ahead


def squared(number):
    return number**2


def with_pid(offset, number):
    return os.getpid(), np.full(3, number + offset)


def late(number):
    time.sleep(0.05 * (number == 0))
    return number


def dies(number):
    if number == 3:
        os._exit(9)
    return number


def test_results_come_in_the_order_of_the_tasks():
    with Processes() as processes:
        assert list(processes.run(late, range(20), 2)) == list(range(20))
        assert list(processes.run(squared, range(5), 2)) == [0, 1, 4, 9, 16]
        assert list(processes.run(squared, [], 2)) == []


def test_processes_stay_from_run_to_run():
    with Processes() as processes:
        seen = []
        for offset in (0, 10):
            found = list(processes.run(partial(with_pid, offset), range(8), 2))
            seen.append({pid for pid, _ in found})
            numbers = np.stack([array for _, array in found])
            assert (numbers == np.arange(8)[:, None] + offset).all()
        assert seen[0] == seen[1]
        assert len(seen[0]) == 2
        assert os.getpid() not in seen[0]
    assert not any(map(is_alive, seen[0]))


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_cannot_be_sent_is_inherited_by_others():
    secret = threading.Lock()  # no pickle holds it

    def closure(number):
        return os.getpid(), number, secret.locked()

    with Processes() as processes:
        first = {pid for pid, _ in processes.run(partial(with_pid, 0), range(4), 1)}
        found = list(processes.run(closure, range(4), 1))
        assert [(n, locked) for _, n, locked in found] == [(n, False) for n in range(4)]
        assert not first & {pid for pid, *_ in found}


def test_a_death_is_told_and_others_can_start():
    with Processes() as processes:
        with pytest.raises(ProcessDied):
            list(processes.run(dies, range(9), 2))
        assert list(processes.run(squared, range(3), 2)) == [0, 1, 4]


def test_a_run_that_is_not_finished_leaves_nothing_behind():
    with Processes() as processes:
        results = processes.run(squared, range(100), 2)
        assert list(islice(results, 2)) == [0, 1]
        results.close()
        assert list(processes.run(squared, [7], 2)) == [49]


def test_a_thread_runs_ahead_but_not_far():
    made = []

    def items():
        for number in count():
            made.append(number)
            yield number

    found = ahead(items(), 2)
    assert next(found) == 0
    deadline = time.monotonic() + PATIENCE
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.01)
    assert made == [0, 1, 2, 3]  # one used, two ready, one that waits for room
    found.close()
    assert threading.active_count() == 1 or len(made) == 4


def test_errors_of_the_thread_are_raised_where_its_items_are_used():
    def items():
        yield 1
        raise KeyError("x")

    found = ahead(items(), 2)
    assert next(found) == 1
    with pytest.raises(KeyError):
        next(found)


def test_closing_closes_what_the_thread_reads():
    closed = []

    def items():
        try:
            yield from count()
        finally:
            closed.append(threading.current_thread().name)

    found = ahead(items(), 1)
    next(found)
    found.close()
    assert closed
    assert closed != [threading.current_thread().name]
