"""Measures the bytes and times of the messages that an engine carries.

Forecasts the bytes, memory and time of a run from its first messages.

Round 0 is run, because only this shows the length of thin factors. Two rounds follow in
which each client takes one mini-batch: a method may send other tensors once its server
has a state. The messages of all later rounds have the tensors of the second one. Only
the digits of numbers in their headers differ.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from federatedscope_ggeur.cfg_ggeur.keys import all_keys, put_key
from federatedscope_ggeur.federation.exchanges import Requests
from federatedscope_ggeur.federation.exchanges.base import Spent
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import EVALUATE
from federatedscope_ggeur.federation.exchanges.training.exchange import (
    TRAIN,
    TrainingClient,
    TrainingExchange,
)
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast
from federatedscope_ggeur.machine import peak_memory, torch_threads

from .embedded import EmbeddedEngine
from .run import Run, pooled_rows


@dataclass
class Meter:
    """Measures the messages of one part of a course.

    Attributes
    ----------
    phases : dict from phase to Spent
        The bytes of each kind of message, and how long clients took, over all clients.
    doing : dict from what clients did to float
        How long they took for what may take long; see `RequestKind.doing`.
    broadcast : bytes
        A message by which a client was asked to train.
    wall : float
        The seconds of the whole part.
    """

    phases: dict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))
    doing: dict[str, float] = field(default_factory=dict)
    broadcast: bytes = b""
    wall: float = 0.0

    def follow(self, requests: Requests) -> Requests[None]:
        """Pass requests on, and measure them."""
        replies = None
        while True:
            try:
                request = requests.send(replies)
            except StopIteration:
                return
            kind = request.kind
            with timed() as seconds:
                replies = yield request
            self.phases[kind.name] += Spent(seconds[0])
            if kind.doing:
                self.doing[kind.doing] = self.phases[kind.name].seconds
            for k, parts in request.parts.items():
                for payload, part in zip(kind.parts, parts):
                    several = len(kind.parts) > 1
                    name = _phase(payload.__name__) if several else kind.name
                    self.phases[name] += Spent(down=len(part))
                self.phases[kind.name] += Spent(up=sum(map(len, replies[k])))
                if kind is TRAIN:
                    self.broadcast = parts[0]

    def shown(self) -> dict[str, Spent]:
        """The phases with at least one byte."""
        return {name: one for name, one in self.phases.items() if one.up or one.down}


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


#: The number of mini-batches whose mean time is the time of one.
_TIMED = 32


@dataclass(frozen=True)
class Seconds:
    """Estimated seconds on this machine.

    Attributes
    ----------
    round0, calibration : float
        Measured seconds.
    mini_batch : float
        Seconds of one mini-batch of one client.
    rounds : float
        Seconds of all rounds, with their scoring.
    doing : dict from what clients do to float
        The long parts of round 0.
    """

    round0: float
    mini_batch: float = 0.0
    rounds: float = 0.0
    calibration: float = 0.0
    doing: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return self.round0 + self.rounds + self.calibration


def rehearsed(cfg):
    """A copy of `cfg` for a run that begins at round 0 and writes no files."""
    cfg = cfg.clone()
    cfg.defrost()
    cfg.federate.save_to = cfg.federate.restore_from = ""
    for key in all_keys():
        if key.in_site_folder:  # this run sends nothing
            put_key(cfg.ggeur, key.name, "")
    cfg.freeze()
    return cfg


def set_up(cfg) -> Run:
    """Make the run of `cfg`, to begin at round 0 and without files."""
    return Run(rehearsed(cfg))


def forecast(run: Run) -> Forecast:
    """Forecast the bytes, memory and time of a `run` made by `set_up`.

    `phase` of the run's engine shows what takes long.

    Raises
    ------
    GGEURError
        The error that stops the run in round 0 or at its first mini-batches.
    """
    with torch_threads(run.settings.num_threads):
        return Forecast(run)


class Forecast:
    """The bytes, memory and time that a run will take.

    They are measured in a run with one mini-batch for each client.

    Parameters
    ----------
    run : Run
        Made by `set_up`.

    Attributes
    ----------
    pooled : PooledRows or None
        The rows that must be brought to one place before the run.
    round0, round, calibration : dict from phase to Spent
        `round` is the first round, with its scoring. Phases without bytes are left out.
    total : Spent
        The bytes of the whole run, if nothing stops it early. The digits of numbers can
        make a message 8 bytes longer or shorter.
    rounds, scored : int
        All rounds, and the rounds that end with scoring.
    drawn : int
        The clients that train in a round.
    rows : dict from client number to int
        Rows of the training set, augmentation included; empty if nobody trains.
    set_bytes : int
        Bytes of these sets together.
    same_every_round : bool
        Whether a set that fits into memory is drawn only once.
    peak_bytes : int or None
        The peak memory of this process; None if the system does not report it.
    seconds : Seconds
    """

    def __init__(self, run: Run):
        self._run, role = run, run.settings.role
        single = replace(role.training, batch_or_epoch="batch", local_update_steps=1)
        settings = replace(
            run.settings,
            role=replace(role, training=single, eval_every=1),
            save_to="",
            restore_from="",
            checkpoint_every=None,
        )
        self._engine = EmbeddedEngine(run.data, settings, run.history.results())
        self._engine.packs, self._engine.phase = True, run.engine.phase
        coordinator, demands = self._engine.coordinator, settings.demands
        before = self._carry(coordinator.round0())
        self.rounds = self._engine.server.rounds
        trains = self._engine.server.participants if self.rounds else ()
        recipes = [self._engine.clients[k].recipe for k in trains]
        self.rows = {k: recipe.rows for k, recipe in zip(trains, recipes)}
        self.set_bytes = sum(recipe.nbytes for recipe in recipes)
        self.same_every_round = all(recipe.same_every_round for recipe in recipes)
        numbers = range(1, self.rounds + 1)
        stages = [self._carry(coordinator.round(number)) for number in numbers[:2]]
        after = Meter()
        if demands.calibrates or demands.scales_trained:
            after = self._carry(coordinator.after_rounds())
        self.round0, self.calibration = before.shown(), after.shown()
        self.round = stages[0].shown() if stages else {}
        self.scored = sum(map(self._is_scored, numbers))
        self.drawn = len(self._sample(1)) if self.rounds else 0
        self.total = sum([*before.phases.values(), *after.phases.values()], Spent())
        for number in numbers:
            phases = dict(stages[min(number, len(stages)) - 1].phases)
            if not self._is_scored(number):
                phases.pop(EVALUATE.name, None)
            self.total += sum(phases.values(), Spent())
        self.pooled = pooled_rows(run.data)
        if self.pooled is not None:
            self.total += Spent(up=self.pooled.bytes_up)
        mini_batch, of_rounds = self._times(stages) if stages else (0.0, 0.0)
        self.seconds = Seconds(
            before.wall,
            mini_batch,
            of_rounds,
            after.wall if after.phases else 0.0,
            before.doing,
        )
        self.peak_bytes = peak_memory()

    def _carry(self, requests: Requests) -> Meter:
        meter = Meter()
        with timed() as seconds:
            self._engine.carry(meter.follow(requests))
        meter.wall = seconds[0]
        return meter

    def _is_scored(self, number: int) -> bool:
        due = number % self._run.settings.role.eval_every == 0
        return due or number == self._run.settings.rounds

    def _sample(self, number: int) -> list[int]:
        return self._engine.coordinator.find(TrainingExchange).sample(number)

    def _times(self, stages: list[Meter]) -> tuple[float, float]:
        """Estimate the seconds of one mini-batch, and of all rounds.

        A round takes as long as the last measured one, plus the time of the
        mini-batches that its clients left out.
        """
        batches = self._run.settings.role.training.batches
        steps = {k: batches(n) for k, n in self.rows.items()}
        one, rounds = self._mini_batch(stages[-1], steps), range(1, self.rounds + 1)
        scoring = stages[-1].phases[EVALUATE.name].seconds + self._server_scoring()
        training = max(0.0, stages[-1].wall - scoring)
        more = sum(max(0, steps[k] - 1) for n in rounds for k in self._sample(n))
        # In the first round sets are drawn, and then kept.
        first = max(0.0, stages[0].wall - stages[-1].wall)
        total = first + self.rounds * training + more * one + self.scored * scoring
        return one, total

    def _mini_batch(self, stage: Meter, steps: Mapping[int, int]) -> float:
        """Measure the seconds of one mini-batch, on the client with the largest set."""
        k = max(steps, key=lambda number: steps[number])
        if steps[k] < 2:
            return 0.0
        client = self._engine.clients[k]
        broadcast = Broadcast.from_bytes(stage.broadcast, client.schema)
        taken, settings = [], client.settings
        side = self._engine.side(k, TrainingClient)
        for count in (1, 1, 1 + _TIMED):  # the first one to warm up
            training = replace(settings.training, local_update_steps=count)
            client.settings = replace(settings, training=training)
            with timed() as seconds:
                side.train(broadcast)
            taken += seconds
        return max(0.0, taken[2] - taken[1]) / _TIMED

    def _server_scoring(self) -> float:
        plan, evaluation = self._run.settings.plan, self._engine.coordinator.evaluation
        splits = self._run.data.server_rows(
            plan.evaluation.splits, plan.server_evaluates
        )
        with timed() as seconds:
            for domains in splits.values():
                for rows in domains.values():
                    evaluation.score_rows(rows)
        return seconds[0]
