"""What a worker does wrong in a test, at which moment, and a trace of what it did.

An occasion is "<kind of request> <round>" on a client, before it answers, and
"checkpoint <round>" on the server, after it is written.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from processes import GATE, MODEL, TRACE
from safetensors.torch import save_file

from federatedscope_ggeur.engines.fs.client import GGEURClient
from federatedscope_ggeur.engines.fs.server import GGEURServer
from federatedscope_ggeur.engines.fs.trainer import GGEURTrainer
from federatedscope_ggeur.engines.sites.federation import DistributedRun
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast


def act(actions: Mapping[str, str]) -> None:
    """Do what `actions` say on each occasion.

    "die": be killed. "hold": wait for the gate, for ever if nobody opens it. "unsent":
    be killed when the answer is made and noted.
    """
    _before_answers(actions)
    _after_checkpoints(actions)
    _trace_answers()
    _trace_joining()
    _keep_final_model()


def _before_answers(actions: Mapping[str, str]) -> None:
    original = GGEURTrainer.answer

    def answer(trainer, kind, parts):
        number = 0
        if Broadcast in kind.parts:
            number = wire.unpack(parts[0], "broadcast", "the server").integer("round")
        occasion = f"{kind.name} {number}"
        _note(f"asked {occasion}")
        action = actions.get(occasion, "")
        if action in STOPS:
            STOPS[action]()
        answer = original(trainer, kind, parts)
        if action == "unsent":
            _die()
        return answer

    GGEURTrainer.answer = answer


def _after_checkpoints(actions: Mapping[str, str]) -> None:
    original = DistributedRun.note

    def note(federation, record):
        original(federation, record)
        if federation.history.calibrated is None:
            occasion = f"checkpoint {len(federation.history.rounds)}"
            _note(occasion)
            if occasion in actions:
                STOPS[actions[occasion]]()

    DistributedRun.note = note


def _trace_answers() -> None:
    original = GGEURServer.callback_for_answer

    def callback(server, message):
        _note(f"got {message.msg_type} {message.state} of {message.sender}")
        original(server, message)

    GGEURServer.callback_for_answer = callback


def _trace_joining() -> None:
    original = GGEURClient.join_in

    def join_in(client):
        original(client)
        _note("admitted")

    GGEURClient.join_in = join_in


def _keep_final_model() -> None:
    original = GGEURClient.callback_funcs_for_finish

    def finish(client, message):
        original(client, message)
        save_file(client.model.state_dict(), MODEL)

    GGEURClient.callback_funcs_for_finish = finish


def _note(line: str) -> None:
    with open(TRACE, "a") as file:
        file.write(line + "\n")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _hold() -> None:
    while not Path(GATE).exists():
        time.sleep(0.02)


STOPS = {"die": _die, "hold": _hold}
