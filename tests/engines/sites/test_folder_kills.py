"""Runs by folder whose processes get SIGKILL at random moments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from folder_world import LEAVE_ONE_OUT, OWN_HEADS, check_as_embedded
from own_process import ROOT

#: Of each run, in each way to run it: 52 of the four runs together.
KILLS = 13
RUNS = {
    "quickstart": (),
    "scaffold": ("ggeur.base_method", "scaffold", "federate.total_round_num", 5),
    "auto": LEAVE_ONE_OUT,
    "personal heads": OWN_HEADS,
}


@pytest.fixture(scope="module")
def ask():
    """Ask `folder_kills.py` for a run, and get how many processes it has killed."""
    if not hasattr(os, "fork"):
        pytest.skip("the sides are forked, which this system cannot")
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    with subprocess.Popen(
        [sys.executable, Path(__file__).with_name("folder_kills.py")],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:

        def ask(*request) -> int:
            program.stdin.write(f"{json.dumps(request)}\n")
            program.stdin.flush()
            return int(program.stdout.readline())

        yield ask


def check_whole(world) -> None:
    """What was published is what its sender keeps, and nothing unfinished is left."""
    for side in world.sides:
        (kept,) = side.keys.glob("run_*")
        is_server = side is world.server
        shared = world.server.shared / ("to" if is_server else f"from/{side.name}")
        own = kept / ("asked" if is_server else "from")
        published, written = (
            {
                path.relative_to(place): path.read_bytes()
                for path in place.rglob("*.msg")
            }
            for place in (shared, own)
        )
        assert published == written
        for place in (kept, side.left):
            assert not list(place.rglob(".*.tmp"))


@pytest.mark.slow
@pytest.mark.parametrize("once", [True, False], ids=["once", "going on"])
@pytest.mark.parametrize("run", list(RUNS))
def test_kills_at_random_moments(run, once, world, embedded, ask):
    """Of the server and the sites, in all phases of their work."""
    wanted, killed, seed = embedded(*RUNS[run]), 0, 0
    while killed < KILLS:
        here, seed = world(*RUNS[run]), seed + 1
        place, lines = str(here.server.folder), here.commands()
        killed += ask(place, lines, seed, KILLS - killed, once)
        check_as_embedded(here, wanted)
        check_whole(here)
