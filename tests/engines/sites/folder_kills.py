"""The program behind `test_folder_kills.py`: runs sides as processes, and kills them.

A request is a line of its standard input: the folder for what they say, their command
lines, the seed of the moments, the most kills, and whether each process runs once. The
answer is how many living processes were killed until the run was over. Each process is
a fork of this one, which has imported everything and never computed.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from own_process import PATIENCE, keep_one_thread

import federatedscope_ggeur.commands.console
import federatedscope_ggeur.engines.sites.server
import federatedscope_ggeur.engines.sites.site  # noqa: F401
from federatedscope_ggeur.cfg_ggeur.load import default_config
from federatedscope_ggeur.cli import main as command
from federatedscope_ggeur.reporting import plots, provenance


class Side:
    """One side, which is one process at a time."""

    def __init__(self, words: list[str], output: Path):
        self._words, self._output = words, output
        self._pid, self.over = 0, False
        #: Seconds of its last whole turn.
        self.turn = 0.0

    def start(self, *more: str) -> None:
        self._since, self._pid = time.monotonic(), os.fork()
        if not self._pid:
            status = 1
            try:
                output = os.open(self._output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(output, 1)
                os.dup2(output, 2)
                status = command([*self._words, *more])
            finally:
                sys.stdout.flush()
                os._exit(status)

    def ends_within(self, seconds: float) -> bool:
        """Whether the process ends by itself so soon."""
        until = time.monotonic() + seconds
        while not (ended := os.waitpid(self._pid, os.WNOHANG))[0]:
            if time.monotonic() > until:
                return False
            time.sleep(0.001)
        self._note_end(ended[1])
        return True

    def kill(self) -> bool:
        """Kill the process; returns whether it was alive."""
        if not self._pid:
            return False
        os.kill(self._pid, signal.SIGKILL)
        status = os.waitpid(self._pid, 0)[1]
        if status != signal.SIGKILL:
            self._note_end(status)
        self._pid = 0
        return status == signal.SIGKILL

    def _note_end(self, status: int) -> None:
        said = self._output.read_text()
        assert not status, said
        self._pid, self.turn = 0, time.monotonic() - self._since
        self.over = "the run is over" in said


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
    while living := [side for side in sides if not (side.over or side.ends_within(0))]:
        time.sleep(drawn.expovariate(4 / turn))
        side = drawn.choice(living)
        if killed < most and not side.ends_within(0) and side.kill():
            killed += 1
            side.start()
    return killed


def answer(place: str, lines: list, seed: int, most: int, once: bool) -> int:
    """Run the sides to the end of their run; returns how many were killed."""
    sides = [Side(line, Path(place, f"side_{k}")) for k, line in enumerate(lines)]
    signal.alarm(int(PATIENCE))
    try:
        kill = kill_turns if once else kill_all_along
        return kill(sides, random.Random(seed), most)
    finally:
        for side in sides:
            side.kill()


def main() -> None:
    requests, answers = sys.stdin, os.fdopen(os.dup(1), "w")
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    keep_one_thread()
    torch.optim.SGD([torch.zeros(1)], lr=0.1)  # imports a third of torch
    default_config()  # reads what is known of all keys
    # Nobody looks at pictures of these runs, and their folders are in no repository.
    plots.draw_curve = lambda results, path: path.touch()
    provenance._git_state = lambda folder: (None, None)
    gc.freeze()
    for line in requests:
        print(answer(*json.loads(line)), file=answers, flush=True)


if __name__ == "__main__":
    main()
