"""Computes tables of clients' rows, and the similarity of domains' shapes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from federatedscope_ggeur.data import DataSet, Embeddings
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.holdings import Holdings
from federatedscope_ggeur.geometry import (
    ClassStatistics,
    GeometricShape,
    shape_similarity,
)
from federatedscope_ggeur.reporting.tables import csv_text

#: The number of directions that Eq. 3 compares, and so the largest similarity.
TOP = 5
#: With more clients, text and picture sum them up.
MOST_CLIENTS = 40


def holdings_csv(held: Holdings, class_names: Sequence[str]) -> str:
    """A CSV text with each client's number, domain, rows, and rows of each class."""
    lines = (
        [number, domain, counts.sum(), *counts.tolist()]
        for number, domain, counts in zip(held.numbers, held.domains, held.counts)
    )
    return csv_text([["client", "domain", "rows", *class_names], *lines])


def client_table(held: Holdings) -> list[tuple[str, ...]]:
    """A table with a line for each client."""
    return [("client", "domain", "rows", "classes")] + [
        (
            str(number),
            domain,
            str(counts.sum()),
            f"{(counts > 0).sum()} of {len(counts)}",
        )
        for number, domain, counts in zip(held.numbers, held.domains, held.counts)
    ]


def domain_table(held: Holdings) -> list[tuple[str, ...]]:
    """A table with a line for each domain, and a line for all if there are several.

    A line has the number of clients, and how many of them have no rows. It also has the
    least, median and most rows and classes of a client.
    """
    rows, classes = held.counts.sum(1), (held.counts > 0).sum(1)
    domains = np.array(held.domains, dtype=object)
    names = list(dict.fromkeys(held.domains))
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
    """The similarity of two domains' shapes, for every pair of classes.

    Attributes
    ----------
    first, second : str
        The two domains.
    values : float array of shape [C, C]
        The similarity (Eq. 3), from 0 to 5, of class c of `first` (row) and class c' of
        `second` (column). NaN if one of the two classes is left out.
    left_out : list of int
        Classes that have fewer than five directions in either domain.
    """

    first: str
    second: str
    values: np.ndarray
    left_out: list[int]

    def averages(self) -> tuple[float | None, float | None]:
        """The mean similarity of equal classes, and that of different classes.

        A mean over no pairs is None.
        """
        diagonal = np.eye(len(self.values), dtype=bool)
        return _mean(self.values[diagonal]), _mean(self.values[~diagonal])


def similarities(
    dataset: DataSet, reference: str = "", centred: bool = True
) -> list[Similarities]:
    """Compare the shapes of classes in one domain with those in the other domains.

    As in the paper's Figure 6 (MNIST with USPS, SVHN and SYN), a shape is computed from
    all training rows of a domain, before they are split over clients. Eq. 3 adds up
    five directions, so a class with fewer directions is left out. Five directions need
    six rows, or five rows if uncentred.

    Parameters
    ----------
    dataset : DataSet
    reference : str
        The domain with which the others are compared; "" means the first.
    centred : bool
        Whether Sigma of Eq. 1 is the covariance, as in augmentation and in Eq. 4.
        Otherwise Sigma is X X^T / n, as Eq. 1 is printed. Then the first direction is
        close to the class mean, so classes with similar means have similar shapes.

    Raises
    ------
    ConfigError
        There is no such domain.
    """
    names = [domain.name for domain in dataset.domains]
    reference = reference or names[0]
    if reference not in names:
        raise ConfigError(
            f"--reference: there is no domain '{reference}'; take one of "
            f"{', '.join(names)}"
        )
    if len(names) == 1:  # no shapes needed, and they take seconds
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
    """A CSV text with a line for each compared pair of classes."""
    lines = (
        [p.first, class_names[i], p.second, class_names[j], float(p.values[i, j])]
        for p in found
        for i, j in np.argwhere(~np.isnan(p.values)).tolist()
    )
    names = ["domain", "class", "other_domain", "other_class", "similarity"]
    return csv_text([names, *lines])


def chance(dim: int) -> float:
    """The approximate similarity (Eq. 3) of random directions in `dim` dimensions."""
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
