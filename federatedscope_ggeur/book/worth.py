"""What each client adds to the head, on rows that the server holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import torch

from federatedscope_ggeur.book.federation import Federation
from federatedscope_ggeur.errors import ConfigError, StatisticsError
from federatedscope_ggeur.geometry import GridStatistics

#: Of more clients there are too many parts.
MOST_CLIENTS = 12


@dataclass(frozen=True)
class Worth:
    """What a client adds to the accuracy.

    Attributes
    ----------
    client : int
    left_out : float
        The accuracy with all clients minus the accuracy without this client.
    shapley : float or None
        Its Shapley value; None with more than `MOST_CLIENTS` clients.
    """

    client: int
    left_out: float
    shapley: float | None


def worth(book: Federation, features: Any, labels: Any) -> list[Worth]:
    """What each client adds, on rows [n, D] with labels [n].

    The value of a set of clients is the accuracy of the head made from this set. The
    empty set, or a set without a head, has the accuracy of chance. Shapley values add
    up to the accuracy of all clients minus the accuracy of chance.

    Raises
    ------
    ConfigError
        There are no rows, or they have other classes than the book.

    References
    ----------
    Shapley, "A value for n-person games", 1953.
    """
    features, labels = torch.as_tensor(features).float(), torch.as_tensor(labels)
    clients, size = book.clients, len(book.class_names)
    if not len(labels) or int(labels.max()) >= size or int(labels.min()) < 0:
        raise ConfigError(f"worth needs rows with labels in 0..{size - 1}")
    if not clients:
        raise ConfigError("no client is in the book")
    totals = {k: book.total([k]) for k in clients}
    whole, exact = tuple(clients), len(clients) <= MOST_CLIENTS
    sizes = range(len(clients) + 1) if exact else (len(clients) - 1, len(clients))
    sums: dict[Sequence[int], GridStatistics] = {
        (): GridStatistics.empty(size, book.grid)
    }
    values = {(): 1 / size}
    for part in (p for n in sizes for p in combinations(clients, n) if p):
        if exact:
            sums[part] = sums[part[:-1]] + totals[part[-1]]
        found = sums[part] if exact else book.total(part)
        values[part] = _accuracy(book, found, features, labels)
    return [
        Worth(
            k,
            values[whole] - values[_without(whole, k)],
            _shapley(k, clients, values) if exact else None,
        )
        for k in clients
    ]


def _accuracy(book: Federation, total: GridStatistics, features, labels) -> float:
    try:
        model = book.form.solve(total.statistics()).model
    except StatisticsError:
        return 1 / len(book.class_names)
    with torch.no_grad():
        return float((model(features).argmax(dim=1) == labels).double().mean())


def _shapley(k: int, clients: Sequence[int], values: dict) -> float:
    """The mean gain from adding client `k`, over all orders of `clients`."""
    n, total = len(clients), 0.0
    for part, value in values.items():
        if k in part:
            share = n * comb(n - 1, len(part) - 1)
            total += (value - values[_without(part, k)]) / share
    return total


def _without(part: Sequence[int], k: int) -> tuple[int, ...]:
    return tuple(j for j in part if j != k)
