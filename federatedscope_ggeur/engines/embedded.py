"""The embedded engine: all roles in one process, with nothing but PyPI packages.

Messages really are packed into bytes and unpacked, so sizes are counted, contents
validated and numbers rounded as on a network.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from federatedscope_ggeur.data import FederatedData
from federatedscope_ggeur.engines.settings import RunSettings
from federatedscope_ggeur.federation import Client, MemoryBudget, Score, Server
from federatedscope_ggeur.federation.messages import (
    Broadcast,
    ClientUpdate,
    Geometry,
    Prototypes,
    Ready,
    ScoreReport,
    Shared,
    StatisticsUpload,
)
from federatedscope_ggeur.reporting import Round0, RoundRecord, average

Order = Callable[[list[int]], list[int]]


class EmbeddedEngine:
    """Runs one federation.

    Parameters
    ----------
    data : FederatedData
    settings : RunSettings
    order : callable, optional
        In which order the given clients run; the results do not depend on it.
    """

    def __init__(
        self, data: FederatedData, settings: RunSettings, order: Order = sorted
    ):
        self.data, self.settings, self._order = data, settings, order
        memory = MemoryBudget(settings.memory_limit)
        self.clients = {
            held.number: Client(
                held.number,
                held.domain,
                held.train.features,
                held.train.labels,
                settings.client,
                memory,
            )
            for held in data.clients
        }
        roster = {number: client.domain for number, client in self.clients.items()}
        self.server = Server(roster, settings.server)
        self._uploaded_pairs = 0
        self._tests = {held.number: held.test for held in data.clients}
        self._server_tests = (
            data.test_sets()
            if settings.server_evaluates
            else {domain.name: domain.test for domain in data.unseen}
        )

    def run(self) -> Iterator[Round0 | RoundRecord]:
        """Round 0, then every round; yields each one's record when it is over."""
        with torch_threads(self.settings.num_threads):
            yield self._round0()
            for number in range(1, self.settings.rounds + 1):
                yield self._round(number)

    def _round0(self) -> Round0:
        started = time.perf_counter()
        sizes: dict[str, int] = {}
        if self.server.needs_statistics:
            sizes = self._collect_statistics()
        geometry_down, prototypes_down, ready_up = self._prepare_clients()
        shared = self.server.start()
        shared_down = 0
        if shared is not None:
            data = shared.to_bytes()
            for client in self.clients.values():
                client.receive(Shared.from_bytes(data, self.server.contract))
            shared_down = len(data) * len(self.clients)
        held = sum(len(c.labels.unique()) for c in self.clients.values())
        return Round0(
            clients=list(self.clients),
            seconds=time.perf_counter() - started,
            statistics_bytes_up=sizes,
            geometry_bytes_down=geometry_down,
            prototypes_bytes_down=prototypes_down,
            uploaded_pairs=self._uploaded_pairs,
            withheld_pairs=held - self._uploaded_pairs if sizes else 0,
            ready_bytes_up=ready_up,
            shared_bytes_down=shared_down,
        )

    def _collect_statistics(self) -> dict[str, int]:
        """Statistics up, window by window; bytes by client number."""
        sizes = {}
        for window in self.server.windows(self.settings.round0_window):
            uploads = []
            for number in self._order(window):
                data = self.clients[number].statistics().to_bytes()
                sizes[number] = len(data)
                upload = StatisticsUpload.from_bytes(
                    data, self.server.contract, f"client {number}"
                )
                self._uploaded_pairs += len(upload.statistics.classes)
                uploads.append(upload)
            self.server.add_statistics(uploads)
        return {str(number): sizes[number] for number in self.clients}

    def _prepare_clients(self) -> tuple[int, int, int]:
        """Geometry and prototypes down, readiness up; bytes of the three."""
        contract = self.server.contract
        geometry, geometry_size, prototypes_down, ready_up = None, 0, 0, 0
        if self.server.needs_statistics:
            data = self.server.geometry().to_bytes()
            geometry, geometry_size = Geometry.from_bytes(data, contract), len(data)
        for number in self._order(list(self.clients)):
            prototypes = self.server.prototypes(number)
            if prototypes is not None:
                data = prototypes.to_bytes()
                prototypes_down += len(data)
                prototypes = Prototypes.from_bytes(data, contract)
            data = self.clients[number].prepare(geometry, prototypes).to_bytes()
            ready_up += len(data)
            self.server.add_ready(Ready.from_bytes(data, contract, f"client {number}"))
        return geometry_size * len(self.clients), prototypes_down, ready_up

    def _round(self, number: int) -> RoundRecord:
        started = time.perf_counter()
        contract = self.server.contract
        drawn = self.server.sample(number)
        data = self.server.broadcast(number).to_bytes()
        bytes_down, bytes_up = len(data) * len(drawn), 0
        broadcast = Broadcast.from_bytes(data, contract)
        updates = []
        for client in self._order(drawn):
            data = self.clients[client].train(broadcast).to_bytes()
            bytes_up += len(data)
            updates.append(ClientUpdate.from_bytes(data, contract, f"client {client}"))
        self.server.step(number, updates)
        scores = None
        if self.server.evaluates(number):
            scores, up, down = self._evaluate(number)
            bytes_up, bytes_down = bytes_up + up, bytes_down + down
        return _record(
            number, drawn, scores, time.perf_counter() - started, bytes_up, bytes_down
        )

    def _evaluate(self, number: int) -> tuple[dict[str, Score], int, int]:
        """Scores by domain, and the bytes of evaluation up and down."""
        scores, up, down = {}, 0, 0
        if not self.settings.server_evaluates:
            data = self.server.broadcast(number).to_bytes()
            down = len(data) * len(self.clients)
            broadcast = Broadcast.from_bytes(data, self.server.contract)
            reports = []
            for client in self._order(list(self.clients)):
                test = self._tests[client]
                scored = self.clients[client].score(
                    broadcast, test.features, test.labels
                )
                data = scored.to_bytes()
                up += len(data)
                reports.append(
                    ScoreReport.from_bytes(
                        data, self.server.contract, f"client {client}"
                    )
                )
            scores = self.server.add_up(number, reports)
        for name, test in self._server_tests.items():
            scores[name] = self.server.score(test.features, test.labels)
        return scores, up, down


@contextmanager
def torch_threads(count: int):
    """Run torch on `count` threads, then on as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _record(
    number: int,
    drawn: list[int],
    scores: dict[str, Score] | None,
    seconds: float,
    bytes_up: int,
    bytes_down: int,
) -> RoundRecord:
    accuracy, avg, std, loss = None, None, None, None
    if scores is not None:
        accuracy = {name: score.accuracy for name, score in scores.items()}
        avg, std = average(accuracy)
        rows = sum(score.total for score in scores.values())
        loss = sum(score.loss_sum for score in scores.values()) / rows if rows else None
    return RoundRecord(
        round=number,
        clients=drawn,
        accuracy=accuracy,
        avg=avg,
        std=std,
        loss=loss,
        seconds=seconds,
        bytes_up=bytes_up,
        bytes_down=bytes_down,
    )
