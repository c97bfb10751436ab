"""Runs by folder whose processes get SIGKILL at random moments."""

from __future__ import annotations

import random
import time
from itertools import count
from pathlib import Path

import pytest
from folder_world import LEAVE_ONE_OUT, OWN_HEADS, check_as_embedded
from processes import PATIENCE, Worker

#: Of each run, in each way to run it: 52 of the four runs together.
KILLS = 13
RUNS = {
    "quickstart": (),
    "scaffold": ("ggeur.base_method", "scaffold", "federate.total_round_num", 5),
    "auto": LEAVE_ONE_OUT,
    "personal heads": OWN_HEADS,
}


class Side:
    """One side, which is one process at a time."""

    def __init__(self, forks, folder: Path, words: list[str]):
        folder.mkdir()
        self._forks, self._folder, self._words = forks, folder, words
        self._numbers, self.over = count(), False
        #: Seconds of its last whole turn.
        self.turn = 0.0

    def start(self, *more: str) -> None:
        folder = self._folder / str(next(self._numbers))
        self._since = time.monotonic()
        self._process = Worker(self._forks, folder, [*self._words, *more])

    def ends_within(self, seconds: float) -> bool:
        """Whether the process ends by itself so soon."""
        until = time.monotonic() + seconds
        while self._process.status() is None:
            if time.monotonic() > until:
                return False
            time.sleep(0.001)
        assert self._process.status() == 0, self._process
        self.turn = time.monotonic() - self._since
        self.over = "the run is over" in self._process.output
        return True

    def kill(self) -> bool:
        """Kill the process; returns whether it was alive."""
        self._process.kill()
        return self._process.status() == -9 or not self.ends_within(0)


def kill_turns(sides: list[Side], drawn: random.Random, most: int) -> int:
    """Sides take turns; one that was killed in its turn begins it again."""
    killed = 0
    while not all(side.over for side in sides):
        for side in sides:
            while not side.over:
                side.start("--once")
                moment = PATIENCE
                if side.turn and killed < most:
                    moment = drawn.expovariate(1.5 / side.turn)
                if side.ends_within(moment):
                    break
                killed += side.kill()
    return killed


def kill_all_along(sides: list[Side], drawn: random.Random, most: int) -> int:
    """All sides run beside each other; one that was killed is started again."""
    killed = 0
    for side in sides:
        side.start("--once")
        assert side.ends_within(PATIENCE)
    turn = max(side.turn for side in sides)
    for side in sides:
        side.start()
    while living := [side for side in sides if not side.ends_within(0)]:
        if killed == most:
            assert living[0].ends_within(PATIENCE)
            continue
        time.sleep(drawn.expovariate(4 / turn))
        side = drawn.choice(living)
        if side.kill():
            killed += 1
            side.start()
    return killed


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
@pytest.mark.parametrize("kill", [kill_turns, kill_all_along], ids=["once", "going on"])
@pytest.mark.parametrize("run", list(RUNS))
def test_kills_at_random_moments(run, kill, world, embedded, fork_server, tmp_path):
    """Of the server and the sites, in all phases of their work."""
    wanted, killed, seed = embedded(*RUNS[run]), 0, 0
    while killed < KILLS:
        here, seed = world(*RUNS[run]), seed + 1
        sides = [
            Side(fork_server, tmp_path / f"side_{seed}_{k}", words)
            for k, words in enumerate(here.commands())
        ]
        killed += kill(sides, random.Random(seed), KILLS - killed)
        check_as_embedded(here, wanted)
        check_whole(here)
