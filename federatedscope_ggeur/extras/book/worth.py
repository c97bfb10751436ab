"""Each client's share of the head's accuracy, measured on rows of the server."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import comb
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, StatisticsError
from federatedscope_ggeur.machine import torch_threads, usable_cores

from .federation import Federation
from .grid import GridStatistics

#: A set of clients, ascending.
Part = tuple[int, ...]
Parts = Generator[tuple[Part, GridStatistics], None, None]

#: More clients have too many sets for Shapley values.
MOST_CLIENTS = 12


@dataclass(frozen=True)
class Worth:
    """The accuracy that a client adds.

    Attributes
    ----------
    client : int
    left_out : float
        The accuracy with all clients minus the accuracy without this client.
    shapley : float or None
        The client's Shapley value; None with more than `MOST_CLIENTS` clients.
    """

    client: int
    left_out: float
    shapley: float | None


def worth(
    book: Federation, rows: Any, labels: Any = None, how: str = ""
) -> list[Worth]:
    """The accuracy that each client adds, on rows with labels; see `Federation.rows`.

    The value of a set of clients is the accuracy of the head made from this set. The
    empty set, or a set without a head, has the accuracy of chance. Shapley values add
    up to the accuracy of all clients minus the accuracy of chance.

    Threads work on several sets at once. The values do not depend on the number of
    threads. The memory grows with the number of clients, not of sets.

    Raises
    ------
    ConfigError
        There are no rows, or the book has no client.
    DataError
        The rows have a fault, or a label is of no class.

    References
    ----------
    Shapley, "A value for n-person games", 1953.
    """
    features, labels = book.expected.labelled(rows, labels, how)
    clients, size = book.clients, len(book.class_names)
    if not len(labels):
        raise ConfigError("worth needs rows with labels")
    if not clients:
        raise ConfigError("no client is in the book")
    totals = {k: book.total([k]) for k in clients}
    whole, exact = tuple(clients), len(clients) <= MOST_CLIENTS
    none = GridStatistics.empty(size, book.grid)
    parts = _all_parts(totals, (), none) if exact else _largest_parts(totals, none)
    values = _accuracies(book, parts, features, labels)
    return [
        Worth(
            k,
            values[whole] - values[_without(whole, k)],
            _shapley(k, clients, values) if exact else None,
        )
        for k in clients
    ]


def _all_parts(
    totals: Mapping[int, GridStatistics], part: Part, total: GridStatistics
) -> Parts:
    """All sets that begin with `part`, each with the sum of its statistics.

    Depth first, so that memory holds only one sum for each client of a set.
    """
    yield part, total
    for k, own in totals.items():
        if not part or k > part[-1]:
            yield from _all_parts(totals, (*part, k), total + own)


def _largest_parts(totals: Mapping[int, GridStatistics], none: GridStatistics) -> Parts:
    """The set of all clients, and each set without one of them."""
    whole = tuple(totals)
    total = sum(totals.values(), none)
    yield whole, total
    for k, own in totals.items():
        yield _without(whole, k), total - own


def _accuracies(
    book: Federation, parts: Parts, features: Tensor, labels: Tensor
) -> dict[Part, float]:
    """The accuracy of the head of each set of clients."""
    threads = book.num_threads
    workers = max(1, usable_cores() // threads)
    found: dict[Part, float] = {}
    taking = Lock()

    def work() -> None:
        while True:
            with taking:
                taken = next(parts, None)
            if taken is None:
                return
            part, total = taken
            found[part] = _accuracy(book, total, features, labels)

    # torch counts its threads for each Python thread, so each worker sets the number.
    pool = ThreadPoolExecutor(workers, "worth", torch.set_num_threads, (threads,))
    with torch_threads(threads), pool:
        try:
            for worker in [pool.submit(work) for _ in range(workers)]:
                worker.result()
        finally:  # after an error or Ctrl-C the workers find no more sets
            with taking:
                parts.close()
    return found


def _accuracy(
    book: Federation, total: GridStatistics, features: Tensor, labels: Tensor
) -> float:
    try:
        model = book.head_of(total).model
    except StatisticsError:
        return 1 / len(book.class_names)
    with torch.no_grad():
        return float((model(features).argmax(dim=1) == labels).double().mean())


def _shapley(k: int, clients: Sequence[int], values: Mapping[Part, float]) -> float:
    """The mean gain from adding client `k`, over all orders of `clients`."""
    n, total = len(clients), 0.0
    for part, value in sorted(values.items()):
        if k in part:
            share = n * comb(n - 1, len(part) - 1)
            total += (value - values[_without(part, k)]) / share
    return total


def _without(part: Part, k: int) -> Part:
    return tuple(j for j in part if j != k)
