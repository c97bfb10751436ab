"""The embedded engine: all roles in one process, with nothing but PyPI packages.

Messages really are packed into bytes and unpacked, so sizes are counted, contents
validated and numbers rounded as on a network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import torch

from federatedscope_ggeur.cfg_ggeur.run_settings import RunSettings
from federatedscope_ggeur.data import FederatedData
from federatedscope_ggeur.federation import Client, MemoryBudget, Server
from federatedscope_ggeur.federation.course.checkpoint import (
    CheckpointWriter,
    Progress,
    restore,
)
from federatedscope_ggeur.federation.course.client_handler import (
    ClientHandler,
    GeometryCache,
)
from federatedscope_ggeur.federation.course.client_store import ClientStore
from federatedscope_ggeur.federation.course.coordinator import Coordinator
from federatedscope_ggeur.federation.course.requests import Conversation
from federatedscope_ggeur.federation.messages.handshake import Handshake
from federatedscope_ggeur.reporting import HeadRecord, Round0, RoundRecord

Order = Callable[[list[int]], list[int]]
T = TypeVar("T")


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
        memory, cache = MemoryBudget(settings.memory_limit), GeometryCache()
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
        client_domains = {
            number: client.domain for number, client in self.clients.items()
        }
        self.server = Server(client_domains, settings.server)
        unseen = {domain.name: domain.test for domain in data.unseen}
        tests = data.test_sets() if settings.plan.server_evaluates else unseen
        self.coordinator = Coordinator(self.server, settings.plan, tests)
        self._handshake = Handshake(
            tuple(data.class_names), data.dim, data.encoder, settings.agreed
        )
        self._handlers = {
            held.number: ClientHandler(
                self.clients[held.number],
                held.test,
                cache,
                self._store(settings.save_to, held.number),
                settings.answers,
            )
            for held in data.clients
        }
        self.progress = self._restored()

    def run(self) -> Iterator[Round0 | RoundRecord | HeadRecord]:
        """Round 0, every round, and calibration; yields each one's record at its end.

        A run that goes on from a checkpoint yields what the checkpoint holds first.
        """
        writer = None
        if self.settings.save_to:
            writer = CheckpointWriter(
                self.settings.save_to, self._handshake, self.progress
            )
        with torch_threads(self.settings.num_threads):
            round0, rounds = self._so_far()
            if writer:
                writer.write(self.coordinator, round0, rounds)
            yield round0
            yield from rounds
            for number in range(len(rounds) + 1, self.settings.rounds + 1):
                rounds.append(self._carry(self.coordinator.round(number)))
                if writer:
                    writer.write(self.coordinator, round0, rounds)
                yield rounds[-1]
            if self.settings.server.calibration is not None:
                yield self._carry(self.coordinator.calibrate())

    def _so_far(self) -> tuple[Round0, list[RoundRecord]]:
        if self.progress is not None:
            self._carry(self.coordinator.welcome_back())
            return self.progress.round0, list(self.progress.rounds)
        round0 = self._carry(self.coordinator.round0())
        if round0.statistics_bytes_up:
            held = sum(
                len(self.clients[k].labels.unique()) for k in self.server.participants
            )
            round0 = replace(round0, withheld_pairs=held - round0.uploaded_pairs)
        return round0, []

    def _carry(self, conversation: Conversation[T]) -> T:
        """Bring each request to the clients and their answers back, to the end."""
        replies = None
        while True:
            try:
                request = conversation.send(replies)
            except StopIteration as stop:
                return stop.value
            replies = {
                k: self._handlers[k].answer(request.kind, request.parts[k])
                for k in self._order(list(request.parts))
            }

    def _store(self, checkpoint: str, number: int) -> ClientStore | None:
        return ClientStore(checkpoint, number) if checkpoint else None

    def _restored(self) -> Progress | None:
        path = self.settings.restore_from
        if not path:
            return None
        progress = restore(path, self.coordinator, self._handshake)
        if progress is not None:
            # A state may be newer than the checkpoint, by the round that was cut off.
            done = len(progress.rounds)
            trained = {k for record in progress.rounds for k in record.clients}
            for number, client in self.clients.items():
                store = ClientStore(path, number)
                stateful = self.settings.client.method.keeps_state
                held = stateful and number in trained and len(client.features)
                states = store.load_of_trained() if held else store.load()
                client.states = {n: s for n, s in states.items() if n <= done}
        return progress


@contextmanager
def torch_threads(count: int):
    """Run torch on `count` threads, then on as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
