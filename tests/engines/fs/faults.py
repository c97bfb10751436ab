"""What a worker does wrong in a test, at which moment, and a trace of what it did.

An occasion is "<kind of request> <round>" on a client, before it answers, and
"checkpoint <round>" on the server, after it is written.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from processes import GATE, MODEL, TRACE
from safetensors.torch import save_file

from federatedscope_ggeur.engines.federation import Federation
from federatedscope_ggeur.engines.fs.client import GGEURClient
from federatedscope_ggeur.engines.fs.server import GGEURServer
from federatedscope_ggeur.engines.fs.trainer import GGEURTrainer
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.exchanges.augmentation.messages import PrepareReply
from federatedscope_ggeur.federation.exchanges.evaluation.messages import ScoreReport
from federatedscope_ggeur.federation.exchanges.evaluation.scores import Score
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.exchanges.training.messages import (
    Broadcast,
    ClientUpdate,
)
from federatedscope_ggeur.federation.wire.declared import Declared
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.geometry import ClassStatistics
from federatedscope_ggeur.models import num_parameters


def act(actions: Mapping[str, str]) -> None:
    """Do what `actions` say on each occasion.

    "die": be killed. "hold": wait for the gate, for ever if nobody opens it. "slow":
    sleep for longer than a deadline of 3 s. Any other is the name of a function below,
    which makes another answer of the right one. On "join" there is "boast".
    """
    if actions.get("join") == "boast":
        # Whatever it sends, it has declared more.
        boast = Declared(10**12, 10**12, 10**12, 2.0**45)
        Declared.of = classmethod(lambda cls, train, val, test: boast)
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
        right = original(trainer, kind, parts)
        return ANSWERS[action](trainer, right) if action in ANSWERS else right

    GGEURTrainer.answer = answer


def _after_checkpoints(actions: Mapping[str, str]) -> None:
    original = Federation.note

    def note(federation, record):
        original(federation, record)
        if federation.history.calibrated is None:
            occasion = f"checkpoint {len(federation.history.rounds)}"
            _note(occasion)
            if occasion in actions:
                STOPS[actions[occasion]]()

    Federation.note = note


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


def _be_slow() -> None:
    time.sleep(4.0)


STOPS = {"die": _die, "hold": _hold, "slow": _be_slow}


# Answers in place of the right one.


def _changed(trainer, right, **changes):
    size = num_parameters(trainer.client.model)
    schema = MessageSchema(trainer.data.num_classes, trainer.data.dim, size)
    update = ClientUpdate.from_bytes(right[0], schema, "this client")
    return (replace(update, **changes).to_bytes(),)


def nan_weights(trainer, right):
    size = num_parameters(trainer.client.model)
    return _changed(trainer, right, params=torch.full((size,), torch.nan))


def too_few_weights(trainer, right):
    return _changed(trainer, right, params=torch.ones(3))


def of_client_1(trainer, right):
    return _changed(trainer, right, client=1)


def of_round_7(trainer, right):
    return _changed(trainer, right, round_number=7)


def _poisoned(trainer, right, means, variance):
    client = trainer.client
    schema, sender = client.schema, f"client {client.number}"
    upload = StatisticsUpload.from_bytes(right[0], schema, sender)
    held = upload.statistics
    counts = torch.where(held.counts > 0, 5 * 10**10, 0)
    statistics = ClassStatistics.from_moments(
        counts,
        torch.full_like(held.means, means) * (counts > 0)[:, None],
        covariances={c: variance * torch.eye(held.dim).double() for c in held.classes},
    )
    return (replace(upload, statistics=statistics).to_bytes(),)


def far_means(trainer, right):
    return _poisoned(trainer, right, 1e3, 1.0)


def wide_shapes(trainer, right):
    return _poisoned(trainer, right, 0.0, 1e30)


def heavy(trainer, right):
    reply = PrepareReply(trainer.client.number, 2.0**40)
    return (reply.to_bytes(),)


def far_weights(trainer, right):
    size = num_parameters(trainer.client.model)
    return _changed(trainer, right, params=torch.full((size,), 1e3))


def huge_weights(trainer, right):
    size = num_parameters(trainer.client.model)
    return _changed(trainer, right, params=torch.full((size,), 3e38))


def false_scores(trainer, right):
    score = Score(2**40, 2**40, 0.0)
    report = ScoreReport.from_bytes(right[0], None, f"client {trainer.client.number}")
    return (replace(report, scores={"test": score}).to_bytes(),)


def garbage(trainer, right):
    return (b"\x80\x04garbage",)


def unsent(trainer, right):
    """It is killed when its answer is made and noted."""
    _die()


def twice(trainer, right):
    return (*right, *right)


ANSWERS = {
    function.__name__: function
    for function in (
        nan_weights,
        too_few_weights,
        of_client_1,
        far_means,
        wide_shapes,
        heavy,
        far_weights,
        huge_weights,
        false_scores,
        of_round_7,
        garbage,
        unsent,
        twice,
    )
}
