"""What this process may use of its machine, and what it has used."""

import os
import sys

from own_process import python

from federatedscope_ggeur.machine import peak_memory, start_method, usable_cores


def test_the_peak_is_at_least_what_is_held():
    held = bytearray(50_000_000)
    assert peak_memory() > len(held)


def test_cores_are_those_that_the_process_may_use():
    assert 1 <= usable_cores() <= os.cpu_count()
    if hasattr(os, "sched_setaffinity"):
        script = (
            "import os; os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1]); "
            "from federatedscope_ggeur.machine import usable_cores; "
            "print(usable_cores())"
        )
        assert python("-c", script).stdout == "1\n"


def test_only_linux_forks():
    assert start_method() == ("fork" if sys.platform == "linux" else "spawn")
