"""What a config's data are like: who holds what, how alike the domains' shapes are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from federatedscope_ggeur.data import (
    DataSet,
    Embeddings,
    FederatedData,
    class_counts,
    held_lazily,
)
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.geometry import (
    ClassStatistics,
    GeometricShape,
    shape_similarity,
)
from federatedscope_ggeur.reporting.tables import csv_text

#: Directions that Eq. 3 compares; the largest similarity.
TOP = 5
#: More clients are summed up, in print and in the picture.
MOST_CLIENTS = 40


@dataclass(frozen=True, eq=False)
class Holdings:
    """What the clients hold to train on.

    Attributes
    ----------
    counts : int array of shape [K, C]
        Rows of each client (in order of number) and class.
    clients : list of (int, str)
        Their numbers and domains.
    class_names : tuple of str, of length C
    """

    counts: np.ndarray
    clients: list[tuple[int, str]]
    class_names: tuple[str, ...]

    def to_csv(self) -> str:
        """A line for each client: number, domain, rows, then the rows of each class."""
        lines = (
            [number, domain, row.sum(), *row.tolist()]
            for (number, domain), row in zip(self.clients, self.counts)
        )
        return csv_text([["client", "domain", "rows", *self.class_names], *lines])

    def lines(self) -> list[tuple[str, ...]]:
        """A table with a line for each client."""
        held = (self.counts > 0).sum(1)
        return [("client", "domain", "rows", "classes")] + [
            (str(number), domain, str(rows), f"{classes} of {len(self.class_names)}")
            for (number, domain), rows, classes in zip(
                self.clients, self.counts.sum(1), held
            )
        ]

    def summary(self) -> list[tuple[str, ...]]:
        """A table with a line for each domain, and one for all if there are several:
        clients, least, median and most rows and classes of a client, and how many
        clients have no rows."""
        rows, classes = self.counts.sum(1), (self.counts > 0).sum(1)
        domains = np.array([domain for _, domain in self.clients], dtype=object)
        names = list(dict.fromkeys(domains))
        groups = [(name, domains == name) for name in names]
        if len(names) > 1:
            groups.append(("all", np.ones(len(domains), dtype=bool)))
        head = ("domain", "clients", "rows: min", "median", "max", "classes: min")
        return [(*head, "median", "max", "without rows")] + [
            (
                name,
                str(mine.sum()),
                *_spread(rows[mine]),
                *_spread(classes[mine]),
                str((rows[mine] == 0).sum()),
            )
            for name, mine in groups
        ]


@dataclass(frozen=True, eq=False)
class Similarities:
    """How alike two domains' shapes are, for every pair of classes.

    Attributes
    ----------
    first, second : str
        Domains.
    values : float array of shape [C, C]
        Eq. 3 for class c of `first` (row) and c' of `second` (column), 0 to 5; NaN
        where either is left out.
    left_out : list of int
        Classes that have fewer than five directions in either domain.
    """

    first: str
    second: str
    values: np.ndarray
    left_out: list[int]

    def averages(self) -> tuple[float | None, float | None]:
        """Mean similarity of the same class, and of different ones; None of none."""
        diagonal = np.eye(len(self.values), dtype=bool)
        return _mean(self.values[diagonal]), _mean(self.values[~diagonal])


def holdings(data: FederatedData) -> Holdings:
    """Count the rows that the clients of `data` train on."""
    clients = [(client.number, client.domain) for client in held_lazily(data.clients)]
    counts = class_counts(data.clients, data.num_classes)
    return Holdings(counts, clients, data.class_names)


def similarities(
    dataset: DataSet, reference: str = "", centred: bool = True
) -> list[Similarities]:
    """Compare the shapes of a reference domain's classes with those of each other one.

    As in the paper's Figure 6 (MNIST with USPS, SVHN and SYN), the shapes are those of
    all a domain's training rows, before they are divided among clients. A class with
    fewer than five directions in a domain (it takes six rows, or five uncentred ones)
    is left out there, since Eq. 3 adds up five.

    Parameters
    ----------
    dataset : DataSet
    reference : str
        The domain that the others are compared with; "" for the first.
    centred : bool
        Whether Sigma of Eq. 1 is the covariance, as augmentation uses it and Eq. 4
        merges it; else what Eq. 1 prints, X X^T / n. Its first direction is about that
        of the class's mean, which makes all shapes alike where means are.

    Raises
    ------
    ConfigError
        There is no such domain.
    """
    names = [domain.name for domain in dataset.domains]
    reference = reference or names[0]
    if reference not in names:
        raise ConfigError(
            f"--reference: there is no domain '{reference}', there are "
            f"{', '.join(names)}"
        )
    if len(names) == 1:  # shapes of many rows take seconds
        return []
    shapes = {
        d.name: _shapes(d.train, dataset.num_classes, centred) for d in dataset.domains
    }
    return [
        _compare(reference, shapes[reference], name, shapes[name])
        for name in names
        if name != reference
    ]


def similarities_csv(found: Iterable[Similarities], class_names: Sequence[str]) -> str:
    """A line for each two domains and two classes that were compared."""
    lines = (
        [p.first, class_names[i], p.second, class_names[j], float(p.values[i, j])]
        for p in found
        for i, j in np.argwhere(~np.isnan(p.values)).tolist()
    )
    names = ["domain", "class", "other_domain", "other_class", "similarity"]
    return csv_text([names, *lines])


def chance(dim: int) -> float:
    """About what Eq. 3 gives for directions drawn at random in `dim` dimensions."""
    return TOP * math.sqrt(2 / (math.pi * dim))


def _shapes(
    rows: Embeddings, num_classes: int, centred: bool
) -> list[GeometricShape | None]:
    features = rows.features.float()  # pixels are bytes
    statistics = ClassStatistics.from_embeddings(features, rows.labels, num_classes)
    shapes: list[GeometricShape | None] = [None] * num_classes
    for c in statistics.classes:
        if centred:
            shape = GeometricShape.from_statistics(statistics, c)
        else:
            x = features[rows.labels == c].double()
            shape = GeometricShape.from_factors([x], len(x))
        if shape.rank >= TOP:
            shapes[c] = GeometricShape(
                shape.eigenvalues[:TOP], shape.eigenvectors[:, :TOP].clone()
            )
    return shapes


def _compare(
    first: str,
    a: Sequence[GeometricShape | None],
    second: str,
    b: Sequence[GeometricShape | None],
) -> Similarities:
    values = np.full((len(a), len(b)), np.nan)
    for i, one in enumerate(a):
        for j, other in enumerate(b):
            if one is not None and other is not None:
                values[i, j] = shape_similarity(one, other, TOP)
    left_out = [c for c, pair in enumerate(zip(a, b)) if None in pair]
    return Similarities(first, second, values, left_out)


def _spread(values: np.ndarray) -> tuple[str, str, str]:
    return str(values.min()), f"{np.median(values):g}", str(values.max())


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
