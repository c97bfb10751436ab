"""The rows of clients: rows of their own, or ranges of rows that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Union, overload

import numpy as np

from federatedscope_ggeur.rng import numpy_generator

from .embeddings import Embeddings
from .split import hold_out

SPLITS = ("train", "test", "val")


@dataclass(frozen=True)
class ClientData:
    """The rows of one client. Each part may have no rows.

    Parameters
    ----------
    number : int
        The client's number, from 1.
    domain : str
    train, test : Embeddings
    val : Embeddings, optional
        Rows for validation. By default there are none.
    """

    number: int
    domain: str
    train: Embeddings
    test: Embeddings
    val: Embeddings = None

    def __post_init__(self):
        if self.val is None:
            object.__setattr__(self, "val", self.train.select([]))

    def mapped(self, change: Callable[[Embeddings], Embeddings]) -> ClientData:
        """The client with `change` of its rows."""
        return replace(self, **{s: change(getattr(self, s)) for s in SPLITS})

    def hold_out(self, share: float, seed: int) -> ClientData:
        """The client with a share of its training rows moved to validation, class by
        class.

        Which rows are moved depends only on the seed and on the client's domain and
        number.
        """
        if share == 0:
            return self
        labels = self.train.labels.numpy()
        train, val = held_out(labels, share, seed, self.domain, self.number)
        return replace(self, train=self.train.select(train), val=self.train.select(val))


def held_out(
    labels: np.ndarray, share: float, seed: int, domain: str, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of a client's training and validation rows."""
    rng = numpy_generator(seed, "partition", domain, "val", number)
    return hold_out(labels, share, rng)


class ClientRanges(Sequence[ClientData]):
    """A sequence of clients whose rows are ranges of shared rows.

    Only a few numbers are kept for a client. Its rows are views, made each time they
    are needed. A federation may have very many clients, of which few are drawn.

    Parameters
    ----------
    numbers : sequence of int, of length K
        The client numbers, ascending.
    domains : sequence of str, of length K
    rows : mapping from split to mapping from domain to Embeddings
        The rows of each split and domain, client after client.
    sizes : mapping from split to int array [K]
        The number of rows that each client has in a split.
    """

    def __init__(
        self,
        numbers: Sequence[int],
        domains: Sequence[str],
        rows: Mapping[str, Mapping[str, Embeddings]],
        sizes: Mapping[str, np.ndarray],
    ):
        self.numbers, self.domains = list(numbers), list(domains)
        self.rows, self.sizes = rows, sizes
        self._ends = {split: _ends(sizes[split], self.domains) for split in SPLITS}
        self._last: dict[str, tuple[int, Embeddings]] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> ClientData: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ClientData, ...]: ...
    def __getitem__(self, index):
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        number, domain = self.numbers[index], self.domains[index]
        parts = {split: self.part(index, split) for split in SPLITS}
        return ClientData(number, domain, **parts)

    def mapped(self, change: Callable[[Embeddings], Embeddings]) -> ClientRanges:
        """The same clients, with `change` of their rows."""
        rows = {
            split: {domain: change(held) for domain, held in domains.items()}
            for split, domains in self.rows.items()
        }
        return ClientRanges(self.numbers, self.domains, rows, self.sizes)

    def part(self, index: int, split: str) -> Embeddings:
        """The rows that the client at `index` has in a split."""
        kept = self._last.get(split)
        if kept is None or kept[0] != index:
            last = int(self._ends[split][index])
            first = last - int(self.sizes[split][index])
            rows = self.rows[split][self.domains[index]].between(first, last)
            kept = self._last[split] = index, rows
        return kept[1]


def _ends(sizes: np.ndarray, domains: Sequence[str]) -> np.ndarray:
    """The end of each client's range among the rows of its domain."""
    names, codes = np.unique(np.array(domains, dtype=object), return_inverse=True)
    ends = np.zeros(len(domains), dtype=np.int64)
    for code in range(len(names)):
        members = codes == code if len(names) > 1 else slice(None)
        ends[members] = np.cumsum(sizes[members])
    return ends


class ClientRange:
    """One client of `ClientRanges`. It works as a `ClientData`, but holds no rows."""

    __slots__ = ("_all", "_index")

    def __init__(self, clients: ClientRanges, index: int):
        self._all, self._index = clients, index

    @property
    def number(self) -> int:
        return self._all.numbers[self._index]

    @property
    def domain(self) -> str:
        return self._all.domains[self._index]

    @property
    def train(self) -> Embeddings:
        return self._all.part(self._index, "train")

    @property
    def test(self) -> Embeddings:
        return self._all.part(self._index, "test")

    @property
    def val(self) -> Embeddings:
        return self._all.part(self._index, "val")


Held = Union[ClientData, ClientRange]


def held_lazily(clients: Sequence[ClientData]) -> Iterable[Held]:
    """Iterate over the clients without copying rows that they share."""
    if isinstance(clients, ClientRanges):
        return (ClientRange(clients, index) for index in range(len(clients)))
    return clients


def sizes_of(clients: Sequence[ClientData], split: str) -> np.ndarray:
    """The number of rows that each client has in a split: int array [K]."""
    if isinstance(clients, ClientRanges):
        return clients.sizes[split]
    return np.array([len(getattr(one, split)) for one in clients], dtype=np.int64)


def class_counts(clients: Sequence[ClientData], num_classes: int) -> np.ndarray:
    """The number of training rows of each client and class: int array [K, C]."""
    counts = np.zeros((len(clients), num_classes), dtype=np.int64)
    if not isinstance(clients, ClientRanges):
        for i, one in enumerate(clients):
            labels = one.train.labels.numpy()
            counts[i] = np.bincount(labels, minlength=num_classes)
        return counts
    domains = np.array(clients.domains, dtype=object)
    for domain, rows in clients.rows["train"].items():
        members = np.flatnonzero(domains == domain)
        owners = np.repeat(members, clients.sizes["train"][members])
        np.add.at(counts, (owners, rows.labels.numpy()), 1)
    return counts


def all_rows(clients: Sequence[ClientData]) -> Iterator[tuple[str, Embeddings]]:
    """Yield all rows with their split, in as few pieces as they are stored in."""
    if isinstance(clients, ClientRanges):
        for split, domains in clients.rows.items():
            yield from ((split, rows) for rows in domains.values())
        return
    for one in clients:
        yield from ((split, getattr(one, split)) for split in SPLITS)
