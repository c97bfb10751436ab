"""How many rows each client holds, and how many its augmented set has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from federatedscope_ggeur.data import ClientData, class_counts, held_lazily
from federatedscope_ggeur.geometry import AugmentationSettings
from federatedscope_ggeur.geometry.augmentation import share_of


@dataclass(frozen=True, eq=False)
class Holdings:
    """The numbers of training rows of K clients.

    Attributes
    ----------
    numbers : tuple of int, of length K
    domains : tuple of str, of length K
    counts : int array of shape [K, C]
        The rows of each client and class.
    square_norms : float array of shape [K]
        The sum of |x|^2 over each client's embeddings; 0 for pixels.
    """

    numbers: tuple[int, ...]
    domains: tuple[str, ...]
    counts: np.ndarray
    square_norms: np.ndarray

    @classmethod
    def of(cls, clients: Sequence[ClientData], num_classes: int) -> Holdings:
        """Count the training rows of `clients`."""
        held = list(held_lazily(clients))
        return cls(
            tuple(client.number for client in held),
            tuple(client.domain for client in held),
            class_counts(clients, num_classes),
            np.array([_square_norm(client.train.features) for client in held]),
        )

    def among(self, numbers: Collection[int]) -> Holdings:
        """The holdings of the clients `numbers`."""
        wanted = set(numbers)
        rows = [i for i, number in enumerate(self.numbers) if number in wanted]
        return Holdings(
            tuple(self.numbers[i] for i in rows),
            tuple(self.domains[i] for i in rows),
            self.counts[rows],
            self.square_norms[rows],
        )

    @property
    def mean_square_norm(self) -> float:
        """E|x|^2 over all rows; 0 without rows."""
        return float(self.square_norms.sum() / max(1, self.counts.sum()))


def _square_norm(features: Tensor) -> float:
    if not features.is_floating_point():
        return 0.0  # nobody needs it of pixels, which would take much memory in float64
    return float(features.double().pow(2).sum())


@dataclass(frozen=True)
class Withheld:
    """How many pairs, rows and classes the min-count threshold withholds.

    Attributes
    ----------
    threshold : int
    pairs, of_pairs : int
        (client, class) pairs with fewer rows than the threshold, and all pairs with
        rows.
    rows, of_rows : int
        The rows in these pairs, and all rows.
    classes : int
        How many classes are held by clients but sent by none.
    """

    threshold: int
    pairs: int
    of_pairs: int
    rows: int
    of_rows: int
    classes: int

    @classmethod
    def from_counts(cls, counts: np.ndarray, threshold: int) -> Withheld:
        """Count what `threshold` withholds of the rows `counts` [K, C]."""
        held, sent = counts > 0, counts >= max(1, threshold)
        back = held & ~sent
        return cls(
            threshold,
            int(back.sum()),
            int(held.sum()),
            int(counts[back].sum()),
            int(counts.sum()),
            int((held.any(0) & ~sent.any(0)).sum()),
        )

    @property
    def pair_share(self) -> float:
        return self.pairs / max(1, self.of_pairs)

    @property
    def row_share(self) -> float:
        return self.rows / max(1, self.of_rows)


def median_rows(rows: Iterable[int]) -> int:
    """The lower median of the nonzero numbers; 0 if there are none."""
    held = sorted(n for n in rows if n)
    return held[(len(held) - 1) // 2] if held else 0


def sources(domains: Sequence[str], prototypes: str) -> list[object]:
    """The source of each client's prototypes: its domain, or its place in the list."""
    return list(domains) if prototypes == "domain" else list(range(len(domains)))


def augmented_rows(
    held: Holdings, settings: AugmentationSettings, threshold: int, prototypes: str
) -> np.ndarray:
    """How many rows each client trains on in a round: int array [K].

    The number is that of the rows that `augment` makes, or the share that a round
    draws. A class has a shape if any client sends its statistics. Without a shape, step
    1 repeats the client's rows. A client gets one prototype of a class from each other
    source.
    """
    counts, steps, sizes = held.counts, settings.steps, settings.sizes
    if not steps:
        return counts.sum(axis=1)
    if prototypes == "others":
        return _rows_with_sums(counts, settings, threshold)
    own = sources(held.domains, prototypes)
    places = {source: i for i, source in enumerate(dict.fromkeys(own))}
    place = np.array([places[source] for source in own], dtype=np.int64)
    by_source = np.zeros((len(places), counts.shape[1]), dtype=bool)
    np.logical_or.at(by_source, place, counts >= max(1, threshold))
    others = by_source.sum(axis=0) - by_source[place]

    def rows_of(n: int, around: int) -> int:
        """The augmented size of a class with `n` own rows and `around` prototypes."""
        around = around if 2 in steps else 0
        if not n and not around:
            return 0
        total = n + (sizes.around_samples(n) if n and 1 in steps else 0)
        total += around * sizes.around_prototype() if around else 0
        return share_of(sizes.kept(total), settings.share)

    pairs, which = np.unique(
        np.stack([counts.ravel(), others.ravel()]), axis=1, return_inverse=True
    )
    known = np.array([rows_of(*pair) for pair in pairs.T.tolist()], dtype=np.int64)
    return known[which.ravel()].reshape(counts.shape).sum(axis=1)


def _rows_with_sums(
    counts: np.ndarray, settings: AugmentationSettings, threshold: int
) -> np.ndarray:
    """`augmented_rows` with summed statistics, where all classes have one shape.

    The class mean over all other clients is an anchor if clients may get it.
    """
    steps, sizes = settings.steps, settings.sizes
    rest = counts.sum(axis=0) - counts
    near = ((rest > 0) & (rest < threshold)).any(axis=0)
    told = (counts.sum(axis=0) >= threshold) & ~near
    rows = np.zeros(len(counts), dtype=np.int64)
    for k, own in enumerate(counts):
        anchors = told & (rest[k] > 0) if 2 in steps else np.zeros_like(told)
        for n, anchor in zip(own.tolist(), anchors.tolist()):
            total = n + (sizes.around_samples(n) if 1 in steps else 0)
            total += sizes.around_prototype() if anchor else 0
            if n or anchor:
                rows[k] += share_of(sizes.kept(total), settings.share)
    return rows
