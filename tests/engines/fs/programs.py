"""FederatedScope's (FS's) own programs, main.py and hpo.py, in processes of their own.

A checkout in which the plugin is enabled is imported once; each run is then a fork.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

#: Every process ends as the program itself would.
PROGRAM = """\
import json, os, runpy, sys
package, runs = sys.argv[1], json.loads(sys.argv[2])
runpy.run_path(os.path.join(package, "main.py"))
for number, (program, words, hidden) in enumerate(runs):
    if not os.fork():
        for name in hidden:
            sys.modules[name] = None  # as if it were not installed
        path = os.path.join(package, program)
        sys.argv = [path, *words]
        output = os.open(f"output_{number}", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        runpy.run_path(path, run_name="__main__")
        sys.exit()
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


@dataclass(frozen=True)
class Call:
    """A command line, and the packages that are not there."""

    program: str
    words: tuple[str, ...]
    hidden: tuple[str, ...] = ()


def run_programs(
    checkout: Path, folder: Path, calls: Sequence[Call], seconds: float
) -> list[tuple[int, str]]:
    """Exit status and output of each call, made in `folder` one after the other."""
    if not hasattr(os, "fork"):
        pytest.skip("the runs are forked, which this system cannot")
    runs = json.dumps([(call.program, call.words, call.hidden) for call in calls])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(checkout / "federatedscope"), runs],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(checkout)])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=seconds,
    )
    outputs = [(folder / f"output_{n}").read_text() for n in range(len(calls))]
    return list(zip(map(int, done.stdout.split()), outputs))
