"""Makes the client's and the server's side, in the same way for all engines.

Worker processes that answer for the embedded engine's clients.

Each worker answers for some of the clients. Workers are forked when a run begins, so
they see all rows without a copy. From then on a client's state exists in its worker.
The worker returns the parts that others need with each answer.
"""

from __future__ import annotations

import io
import logging
import multiprocessing
import pickle
import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

import torch
from torch import Tensor

from federatedscope_ggeur.cfg_ggeur.run_settings import RunSettings, run_settings
from federatedscope_ggeur.cfg_ggeur.transform import expected_rows
from federatedscope_ggeur.data import ClientData, Embeddings, Given
from federatedscope_ggeur.errors import ConfigError, GGEURError, setting
from federatedscope_ggeur.federation import MemoryBudget, Server
from federatedscope_ggeur.federation.course.checkpoint import FinishedPart, restore
from federatedscope_ggeur.federation.course.client_handler import (
    ClientHandler,
    DecodedParts,
)
from federatedscope_ggeur.federation.course.coordinator import Coordinator
from federatedscope_ggeur.federation.course.membership import Membership
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges import Request, RequestKind
from federatedscope_ggeur.federation.exchanges.base import all_kinds
from federatedscope_ggeur.federation.settings import Prepared
from federatedscope_ggeur.federation.wire.handshake import Handshake, Join
from federatedscope_ggeur.federation.wire.schema import Declared
from federatedscope_ggeur.machine import end_processes, start_method


class Described(Protocol):
    """Facts about the data that are the same for all clients."""

    @property
    def class_names(self) -> tuple[str, ...]: ...
    @property
    def dim(self) -> int: ...
    @property
    def encoder(self) -> str: ...
    @property
    def given(self) -> Given: ...


@dataclass
class Shared:
    """The objects that the clients of one process share."""

    memory: MemoryBudget
    cache: DecodedParts = field(default_factory=DecodedParts)


def settings_for(
    cfg, data: Described, clients: int, prepared: Prepared | None
) -> RunSettings:
    """The settings of a run of `cfg` with `clients` clients on `data`."""
    names = data.class_names
    about = names, data.encoder, data.given
    return run_settings(cfg, len(names), data.dim, clients, prepared, *about)


def known_of_rows(cfg, data: Described) -> dict[str, Any]:
    """The fields of `Results` that say what the run's head expects of rows."""
    expected = expected_rows(cfg, data.class_names, data.encoder, data.given)
    return {
        "class_names": list(data.class_names),
        "encoder": data.encoder,
        "given": expected.given.plain(),
        "prepare": expected.take,
    }


def handshake_of(
    data: Described, agreed: Mapping[str, str], prepared: Prepared | None
) -> Handshake:
    """The handshake of a side that knows `data`, for comparison with other sides."""
    names = tuple(data.class_names)
    return Handshake(
        names, data.dim, data.encoder, agreed, prepared.key if prepared else ""
    )


def client_side(
    held: ClientData,
    settings: RunSettings,
    shared: Shared,
    save_to: str,
    asked: bool = True,
) -> ClientHandler:
    """Make the handler that answers for the client with the data `held`.

    Parameters
    ----------
    held : ClientData
    settings : RunSettings
    shared : Shared
    save_to : str
        The checkpoint to which the state of the client's method belongs. With "" the
        state is not kept.
    asked : bool
        Whether the user chose `save_to`; see `ClientStore`.
    """
    splits, memory = settings.plan.evaluation.splits, shared.memory
    return ClientHandler.of(
        held, settings.role, splits, memory, shared.cache, save_to, asked
    )


def join_of(held: ClientData, handshake: Handshake, demands: Demands) -> Join:
    """The message by which the client with the data `held` joins."""
    scored = len(held.val), len(held.test)
    if not demands.noisy:
        declared = Declared.of(held.train.features, *scored)
    else:  # nothing exact about the rows that are released with noise
        declared = Declared(0, *scored if demands.reports_scores else (0, 0))
    return Join(handshake, declared, held.number, held.domain)


def server_side(
    client_domains: Mapping[int, str],
    settings: RunSettings,
    handshake: Handshake,
    rows: Mapping[str, Mapping[str, Embeddings]],
    members: Membership | None = None,
    dismiss: Callable[[int, str], None] = lambda number, reason: None,
) -> tuple[Coordinator, FinishedPart | None]:
    """Make the server's course for these clients, and restore a continued run.

    It returns the course, and the checkpoint if one was restored.

    Parameters
    ----------
    client_domains : mapping from client number to domain
    settings : RunSettings
    handshake : Handshake
        The handshake of all sides.
    rows, members, dismiss
        See `Coordinator`.

    Raises
    ------
    ConfigError
        The checkpoint cannot be used, or belongs to another run.
    """
    server = Server(client_domains, settings.role)
    coordinator = Coordinator(server, settings.plan, rows, members, dismiss)
    path = settings.restore_from
    return coordinator, restore(path, coordinator, handshake) if path else None


#: The changing attributes of a client that other processes than its worker read.
_SHARED = ("space", "aggregation_weight", "init_broadcast", "states")
#: The seconds in which a worker must end by itself.
_GRACE = 5.0

Answers = dict[int, tuple[bytes, ...]]


def workers_problem(device: torch.device, num_threads: int) -> str:
    """The reason why a run cannot have several workers here; "" if it can."""
    if start_method() != "fork":
        return "several workers need Linux, where a process can be forked; take 1"
    if device.type != "cpu":
        return f"several workers cannot share the {device.type} device; take 1"
    if num_threads > 1:
        threads = setting("num_threads")
        return f"several workers use one thread each; set {threads} 1, or take 1 worker"
    return ""


class Workers:
    """N worker processes that share the clients.

    Parameters
    ----------
    handlers : mapping from client number to ClientHandler
    number : int
        The number N of workers; at most one for each client.

    Raises
    ------
    ConfigError
        The system refuses to start a process.
    """

    def __init__(self, handlers: Mapping[int, ClientHandler], number: int):
        self._clients = {k: handler.client for k, handler in handlers.items()}
        self._owned = _shares(handlers, number)
        self._owner = {k: w for w, owned in enumerate(self._owned) for k in owned}
        self._connections: list[Connection] = []
        self._processes: list[Any] = []
        context = multiprocessing.get_context("fork")
        try:
            for owned in self._owned:
                here, there = context.Pipe()
                self._connections.append(here)
                mine = {k: handlers[k] for k in owned}
                # It closes inherited connections; otherwise no side would notice the
                # other's end.
                arguments = mine, there, list(self._connections), number
                process = context.Process(target=_serve, args=arguments, daemon=True)
                process.start()
                there.close()
                self._processes.append(process)
        except OSError as error:
            self.close()
            raise ConfigError(
                f"{setting('workers')} {number}: the system refuses to start a "
                f"process ({error}); take fewer workers"
            ) from error

    def answer(self, request: Request, order: Sequence[int]) -> Answers:
        """Get the clients' answers to a request, in the given order.

        Raises
        ------
        Exception
            The error of the first client, in this order, that raised one.
        GGEURError
            A worker was killed.
        """
        asked: dict[int, list[int]] = {}
        for k in order:
            asked.setdefault(self._owner[k], []).append(k)
        for w, numbers in asked.items():
            parts = [(k, request.parts[k]) for k in numbers]
            try:
                self._connections[w].send((request.kind.name, parts))
            except OSError as error:
                raise self._lost(w) from error
        answers: Answers = {}
        failures: dict[int, BaseException] = {}
        waiting = {self._connections[w]: w for w in asked}
        while waiting:
            for ready in wait(list(waiting)):
                assert isinstance(ready, Connection)
                w = waiting.pop(ready)
                try:
                    data = ready.recv_bytes()
                except (EOFError, OSError) as error:
                    raise self._lost(w) from error
                self._take(data, answers, failures)
        if failures:
            raise failures[min(failures, key=list(order).index)]
        return {k: answers[k] for k in order}

    def _take(
        self, data: bytes, answers: Answers, failures: dict[int, BaseException]
    ) -> None:
        own, states, failure, records = pickle.loads(data)
        for record in records:
            logging.getLogger(record.name).handle(record)
        for k, state in states.items():
            for name, value in state.items():
                setattr(self._clients[k], name, value)
        answers.update(own)
        if failure is not None:
            client, error, remote = failure
            if remote:
                error.__cause__ = RuntimeError(remote)  # where it happened
            failures[client] = error

    def _lost(self, w: int) -> GGEURError:
        process = self._processes[w]
        process.join(_GRACE)
        number = process.exitcode
        how = f"ended ({number})"
        if number is not None and number < 0:
            how = f"was killed by {signal.Signals(-number).name}"
        owned = self._owned[w]
        return GGEURError(
            f"worker {w + 1} (process {process.pid}), which runs {len(owned)} clients, "
            f"{how}; if memory ran out, lower {setting('workers')}"
        )

    def close(self) -> None:
        """End all workers, also those that are computing."""
        for connection in self._connections:
            connection.close()
        end_processes(self._processes, _GRACE)
        for process in self._processes:
            process.close()
        self._connections, self._processes = [], []


def _shares(handlers: Mapping[int, ClientHandler], number: int) -> list[list[int]]:
    """Divide clients among workers, so that all have about the same number of rows."""
    number = min(number, len(handlers))
    rows = {k: len(handler.client.labels) for k, handler in handlers.items()}
    shares: list[list[int]] = [[] for _ in range(number)]
    totals = [0] * number
    for k in sorted(rows, key=lambda k: (-rows[k], k)):
        w = totals.index(min(totals))
        shares[w].append(k)
        totals[w] += rows[k] + 1
    return [sorted(share) for share in shares]


# In a worker.


def _serve(
    handlers: Mapping[int, ClientHandler],
    connection: Connection,
    inherited: Sequence[Connection],
    number: int,
) -> None:
    """Answer requests until the other end closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:
        other.close()
    torch.set_num_threads(1)
    records = _Records.in_place_of_all()
    for handler in handlers.values():
        handler.client.memory.divide(number)
        break  # all share one
    kinds = {kind.name: kind for kind in all_kinds()}
    sent: dict[int, dict[str, Any]] = {
        k: _state(handler) for k, handler in handlers.items()
    }
    while True:
        try:
            name, parts = connection.recv()
        except (EOFError, OSError):
            return
        answers, failure = _answers(handlers, kinds[name], parts)
        changed = {}
        for k, _ in parts:
            now = _state(handlers[k])
            new = {n: v for n, v in now.items() if v is not sent[k][n]}
            if new:
                changed[k], sent[k] = new, now
        data = _dumps((answers, changed, failure, records.taken()))
        try:
            connection.send_bytes(data)
        except OSError:
            return


def _state(handler: ClientHandler) -> dict[str, Any]:
    return {name: getattr(handler.client, name) for name in _SHARED}


def _answers(
    handlers: Mapping[int, ClientHandler],
    kind: RequestKind,
    parts: Sequence[tuple[int, tuple[bytes, ...]]],
) -> tuple[Answers, tuple[int, BaseException, str] | None]:
    """Collect answers up to the first error.

    Returns the answers, and the error with its client and its traceback, or None.
    """
    answers: Answers = {}
    for k, own in parts:
        try:
            answers[k] = handlers[k].answer(kind, own)
        except Exception as error:
            remote = "" if isinstance(error, GGEURError) else traceback.format_exc()
            try:
                pickle.loads(pickle.dumps(error))
            except Exception:
                error = RuntimeError(f"{type(error).__name__}: {error}")
            return answers, (k, error, remote)
    return answers, None


class _Records(QueueHandler):
    """Collects a worker's log records for the main process."""

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self._records: list[logging.LogRecord] = []

    @classmethod
    def in_place_of_all(cls) -> _Records:
        """Make a handler that replaces all log handlers of this process."""
        records = cls()
        for logger in logging.root.manager.loggerDict.values():
            if isinstance(logger, logging.Logger):
                logger.handlers, logger.propagate = [], True
        logging.root.handlers = [records]
        return records

    def enqueue(self, record: logging.LogRecord) -> None:
        self._records.append(record)

    def taken(self) -> list[logging.LogRecord]:
        taken, self._records = self._records, []
        return taken


class _Pickler(pickle.Pickler):
    """Pickles only a tensor's own values, not all memory behind a view."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.dtype != torch.bfloat16:
            return torch.from_numpy, (value.detach().cpu().contiguous().numpy(),)
        return NotImplemented


def _dumps(value: Any) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()
