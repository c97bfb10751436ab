"""The embedded engine: runs all roles in one process, with only PyPI packages.

Messages are really packed into bytes and unpacked. So sizes are counted, contents
validated and numbers rounded as on a network. The updates of clients that train at once
are the exception: their sizes are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from torch import Tensor

from federatedscope_ggeur.cfg_ggeur.run_settings import RunSettings
from federatedscope_ggeur.data import FederatedData, class_counts, held_lazily
from federatedscope_ggeur.federation import Client, MemoryBudget
from federatedscope_ggeur.federation.course import checkpoint
from federatedscope_ggeur.federation.course.client_handler import (
    ClientHandler,
    ClientStore,
    answer_group,
)
from federatedscope_ggeur.federation.course.history import History
from federatedscope_ggeur.federation.exchanges import ClientSide, Request, Requests
from federatedscope_ggeur.federation.exchanges.base import Carried, carry
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import (
    EvaluationClient,
)
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast
from federatedscope_ggeur.federation.settings import Prepared
from federatedscope_ggeur.machine import torch_threads
from federatedscope_ggeur.reporting import Capture, Results, Round0, RoundRecord
from federatedscope_ggeur.reporting.run_files import CHECKPOINT_FILE

from .workers import Shared, Workers, client_side, handshake_of, server_side

T = TypeVar("T")
S = TypeVar("S", bound=ClientSide)


class EmbeddedEngine:
    """Runs one federation in this process.

    Parameters
    ----------
    data : FederatedData
    settings : RunSettings
    results : Results
        The results known before the run.
    prepared : Prepared, optional
    capture : Capture, optional
        Measures the run. By default a new one starts now.
    workers : int
        The number of processes; see the attribute.

    Attributes
    ----------
    workers : int
        The number of processes that answer for clients. With 1, this process answers.
        The results do not depend on this number.
    order : callable
        Sorts clients into the order in which they run. The results do not depend on it.
    history : History
        The record of the run so far.
    listen : callable (Request, replies) or None
        Called with every request and its answers.
    phase : callable (str, int) -> context manager
        Shows clients' work that may take long: what it is, and on how many rows.
    packs : bool
        Whether the answers of clients that train at once are packed into bytes, too.
        Otherwise their sizes alone are computed.
    """

    def __init__(
        self,
        data: FederatedData,
        settings: RunSettings,
        results: Results,
        prepared: Prepared | None = None,
        capture: Capture | None = None,
        workers: int = 1,
    ):
        self.data, self.settings, self.workers = data, settings, workers
        self.order: Callable[[list[int]], list[int]] = sorted
        self.packs = False
        self.phase: Callable[[str, int], AbstractContextManager[object]]
        self.phase = lambda what, rows: nullcontext()
        self._workers: Workers | None = None
        shared, save_to = Shared(MemoryBudget(settings.memory_limit)), settings.save_to
        self._handlers = {
            held.number: client_side(held, settings, shared, save_to)
            for held in held_lazily(data.clients)
        }
        self.clients = _Clients(self._handlers)
        client_domains = {k: client.domain for k, client in self.clients.items()}
        plan = settings.plan
        rows = data.server_rows(plan.evaluation.splits, plan.server_evaluates)
        handshake = handshake_of(data, settings.agreed, prepared)
        self.coordinator, progress = server_side(
            client_domains, settings, handshake, rows
        )
        self.server = self.coordinator.server
        # With noise, nothing exact of the rows is kept.
        self._rows = capture.data.sha256 if capture and capture.data else ""
        if progress is not None:
            progress.require_data(settings.restore_from, self._rows)
        self._take_states(progress)
        self.listen: Callable[[Request, dict], None] | None = None
        self._handshake, self._progress = handshake, progress
        kept = checkpoint.Checkpointing(self._writer(save_to)) if save_to else None
        self.history = History(self.coordinator, results, kept, progress, capture)
        self.history.own_params = self._own_params
        self.history.personal_params = lambda k: self.clients[k].personal

    def side(self, number: int, kind: type[S]) -> S:
        """The client's side of an exchange, for client `number`."""
        return self._handlers[number].side(kind)

    def keep_in(self, folder: str | Path) -> None:
        """Say where the run's files will be, and write checkpoints there if the user
        named no place."""
        self.coordinator.folder = Path(folder)
        seconds, path = (
            self.settings.checkpoint_every,
            Path(folder) / CHECKPOINT_FILE,
        )
        if self.settings.save_to or seconds is None:
            return
        states = _States(path, self.clients)
        writer, stateful = self._writer(path), self.settings.role.clients_keep_state
        before = states.save if stateful else lambda rounds: None
        self.history.keep(
            checkpoint.Checkpointing(writer, seconds, asked=False, before=before)
        )

    def _writer(self, path: str | Path) -> checkpoint.CheckpointWriter:
        restored = self._progress
        return checkpoint.CheckpointWriter(path, self._handshake, restored, self._rows)

    def run(self) -> Iterator[Round0 | RoundRecord]:
        """Run round 0, all rounds, and calibration; yields the record of each.

        A run that continues from a checkpoint first yields the records in the
        checkpoint.
        """
        history, threads = self.history, self.settings.num_threads
        # The course holds the place of checkpoints until it is closed.
        with (
            torch_threads(threads),
            self._working(),
            closing(history.course(self._note, history.end)) as course,
        ):
            self.carry(next(course))
            yield history.round0
            yield from list(history.rounds)
            for part in course:
                known = len(history.rounds)
                self.carry(part)
                yield from history.rounds[known:]
            if history.calibrated is not None:
                yield history.calibrated

    @contextmanager
    def _working(self) -> Iterator[None]:
        """A context in which the worker processes run, if there are several."""
        number = min(self.workers, len(self._handlers))
        if number > 1:
            self._workers = Workers(self._handlers, number)
        try:
            yield
        finally:
            if self._workers is not None:
                self._workers.close()
                self._workers = None

    def _note(self, record: Round0 | RoundRecord) -> None:
        """Add a record to the history; round 0's gets the number of withheld pairs."""
        if isinstance(record, Round0) and self.settings.demands.own_statistics:
            counts = class_counts(self.data.clients, self.data.num_classes)
            trains = np.isin(list(self.clients), self.server.participants)
            held = int((counts[trains] > 0).sum())
            record = replace(record, withheld_pairs=held - record.uploaded_pairs)
        self.history.note(record)

    def _own_params(self, number: int, broadcast: Broadcast) -> Tensor:
        with torch_threads(self.settings.num_threads):
            return self.side(number, EvaluationClient).eval_params(broadcast)

    def carry(self, requests: Requests[T]) -> T:
        """Pass requests to clients and answers back, until the requests end."""

        def replies_to(request: Request) -> dict:
            with self._shown(request):
                replies = self._answers(request)
            if self.listen is not None:
                self.listen(request, dict(replies))
            return replies

        return carry(requests, replies_to)

    def _shown(self, request: Request) -> AbstractContextManager[object]:
        if not request.kind.doing or self._workers is not None:
            return nullcontext()
        rows = sum(
            len(self.clients[k].labels) + len(self._handlers[k].rows.get("val", ()))
            for k in request.parts
        )
        return self.phase(request.kind.doing, rows)

    def _answers(self, request: Request) -> dict:
        order = self.order(list(request.parts))
        if self._workers is not None:
            return self._workers.answer(request, order)
        handlers, kind = [self._handlers[k] for k in order], request.kind
        parts = [request.parts[k] for k in order]
        answers = answer_group(handlers, kind, parts)
        if answers is None:
            return {
                k: handler.answer(kind, own)
                for k, handler, own in zip(order, handlers, parts)
            }
        return {k: self._carried(answer) for k, answer in zip(order, answers)}

    def _carried(self, answer) -> Carried | tuple[bytes]:
        if self.packs:
            return (answer.to_bytes(),)
        return Carried(answer, answer.packed_size)

    def _take_states(self, progress: checkpoint.FinishedPart | None) -> None:
        """Load the states of clients that belong to the checkpoint."""
        if progress is None:
            return
        # A state may be newer than the checkpoint, by the round that was cut off.
        done = len(progress.rounds)
        trained = {k for record in progress.rounds for k in record.clients}
        stateful = self.server.task.method.keeps_state
        for number, client in self.clients.items():
            held = stateful and number in trained and len(client.features) > 0
            store = ClientStore(self.settings.restore_from, number)
            states = store.load(must_exist=held)
            client.states = {n: s for n, s in states.items() if n <= done}
            if held and not client.states:
                problem = (
                    f"the state is of round {min(states)}, but the checkpoint is of "
                    f"round {done}"
                )
                raise checkpoint.refusal(store.path, problem)


class _Clients(Mapping[int, Client]):
    """The clients by number. It asks the handlers for each, since there may be many."""

    def __init__(self, handlers: Mapping[int, ClientHandler]):
        self._handlers = handlers

    def __getitem__(self, number: int) -> Client:
        return self._handlers[number].client

    def __iter__(self) -> Iterator[int]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)


class _States:
    """Writes the method's states of clients together with a checkpoint.

    The files also keep the states of the previous checkpoint. They are needed if the
    run is killed before the server's checkpoint is written.
    """

    def __init__(self, path: Path, clients: Mapping[int, Client]):
        self._clients = clients
        self._stores = {k: ClientStore(path, k) for k in clients}
        self._before: dict[int, dict] = {k: {} for k in clients}

    def save(self, rounds: int) -> None:
        """Write all states that belong to the checkpoint after `rounds` rounds."""
        for k, client in self._clients.items():
            self._stores[k].save({**self._before[k], **client.states})
            held = [n for n in client.states if n <= rounds]
            newest = {max(held): client.states[max(held)]} if held else {}
            self._before[k] = newest
