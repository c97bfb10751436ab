"""Components: the rows of one class and one client or domain, with their mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.geometry import Statistics, varying


def deviations(variances: Tensor, means: Tensor) -> Tensor:
    """Standard deviations from `variances` [D]; 1 for a constant dimension.

    A dimension is constant if it varies by no more than rounding.
    """
    ones = torch.ones_like(variances)
    return torch.where(varying(variances, means), variances, ones).sqrt()


class Mixed(NamedTuple):
    """The scatter ``W_c + k W`` of a class c, for a share k of the common scatter."""

    c: int
    scatter: Tensor  # [D, D]
    rows: float  # n_c + k N


@dataclass(frozen=True, eq=False)
class Components:
    """J groups of rows. Each group has one class, and is sorted by class, domain,
    client.

    Attributes
    ----------
    labels, counts : Tensor of shape (J,), int64
        The class and the number of rows of each group. No two groups have the same
        class, domain and client.
    means : Tensor of shape (J, D), float64
    clients, domains : Tensor of shape (J,), int64
        The client's number and the index of its domain in `domain_names`; -1 if several
        are merged.
    num_classes : int
        C, including classes without rows.
    domain_names : tuple of str
    scatter : Tensor of shape (D, D), float64, or None
        The sum of the groups' scatters, each about the group's own mean; None if
        unknown.
    sums : Tensor of shape (J,), float64, or None
        The sum of the weights of each group's rows; None if each row has the weight 1.
    class_scatters : Tensor of shape (C', D, D), float64, or None
        The scatter of each of the `classes` about its own mean; None if unknown.
    """

    labels: Tensor
    counts: Tensor
    means: Tensor
    clients: Tensor
    domains: Tensor
    num_classes: int
    domain_names: tuple[str, ...]
    scatter: Tensor | None = None
    sums: Tensor | None = None
    class_scatters: Tensor | None = None

    @classmethod
    def of_client(
        cls, statistics: Statistics, client: int, domain: str, names: tuple[str, ...]
    ) -> Components:
        """The components of one client, one for each class of its statistics.

        `domain` must be one of `names`.
        """
        labels = torch.tensor(statistics.classes, dtype=torch.int64)
        scatter = None if statistics.content == "means" else statistics.scatter()
        return cls(
            labels,
            statistics.counts[labels],
            statistics.means[labels],
            torch.full_like(labels, client),
            torch.full_like(labels, names.index(domain)),
            statistics.num_classes,
            names,
            scatter,
            statistics.weights[labels] if statistics.is_weighted else None,
        )

    @classmethod
    def of_classes(cls, statistics: Statistics) -> Components:
        """One component for each class, as if one client had all rows."""
        return cls.of_client(statistics, 1, "", ("",))

    @classmethod
    def joined(cls, parts: Iterable[Components]) -> Components:
        """Join the components of several clients."""
        parts = list(parts)
        # A client that may send nothing does not say whether its rows have weights.
        parts = [part for part in parts if len(part.counts)] or parts[:1]
        first = parts[0]
        names = ["labels", "counts", "means", "clients", "domains"]
        if first.sums is not None:
            names.append("sums")
        held = {name: torch.cat([getattr(p, name) for p in parts]) for name in names}
        order = sorted(
            range(len(held["labels"])),
            key=lambda j: [int(held[n][j]) for n in ("labels", "domains", "clients")],
        )
        scatters = [part.scatter for part in parts]
        known = [scatter for scatter in scatters if scatter is not None]
        return cls(
            **{name: tensor[order] for name, tensor in held.items()},
            num_classes=first.num_classes,
            domain_names=first.domain_names,
            scatter=sum(known[1:], known[0]) if len(known) == len(parts) else None,
        )

    @property
    def dim(self) -> int:
        return self.means.shape[1]

    @property
    def total(self) -> float:
        """N, the number of rows of all components, or the sum of their weights."""
        return float(self.weights.sum())

    @property
    def weights(self) -> Tensor:
        """The numbers of rows, or the sums of their weights: float64."""
        return self.counts.double() if self.sums is None else self.sums

    @cached_property
    def origin(self) -> Tensor:
        """The mean of all rows: Tensor of shape (D,)."""
        return (self.weights / self.total) @ self.means

    @property
    def classes(self) -> list[int]:
        """The classes that have rows, ascending."""
        return sorted(set(self.labels.tolist()))

    def deviations(self) -> Tensor:
        """The standard deviation of each dimension over all rows: Tensor of shape (D,).

        A dimension that is constant up to rounding has 1.
        """
        between = self.weights @ (self.means - self.origin).square()
        squares = self.within().diagonal() + between
        return deviations(squares / self.total, self.origin)

    def divided(self, by: Tensor) -> Components:
        """The components of the same rows with dimensions divided by `by` [D]."""
        scatter = self.within() / by / by[:, None]
        return replace(
            self, means=self.means / by, scatter=scatter, class_scatters=None
        )

    @cached_property
    def standardized(self) -> Components:
        """The components of the same rows with dimensions divided by their
        `deviations`."""
        return self.divided(self.deviations())

    def within(self) -> Tensor:
        """The scatter within components: Tensor of shape (D, D).

        Raises
        ------
        StatisticsError
            The scatter is unknown, because clients sent only counts and means.
        """
        if self.scatter is None:
            raise StatisticsError(
                "a scatter within classes is needed, but only counts and means are "
                "known"
            )
        return self.scatter

    def with_scatters_of(self, statistics: Statistics) -> Components:
        """The same components with `class_scatters`, from statistics of their rows."""
        scatters = [statistics.scatter(c) for c in self.classes]
        return replace(self, class_scatters=torch.stack(scatters))

    def mixed_scatters(self, share: float) -> Iterator[Mixed]:
        """Yield the scatter of each class, drawn to the common one by `share`.

        Each class must have one component.

        Raises
        ------
        StatisticsError
            The scatters of classes are unknown.
        """
        if self.class_scatters is None:
            raise StatisticsError("a scatter for each class is needed, but is unknown")
        for place, c in enumerate(self.classes):
            rows = float(self.weights[place]) + share * self.total
            yield Mixed(c, self.class_scatters[place] + share * self.within(), rows)

    def mixed_axes(self, share: float) -> list[tuple[Mixed, Tensor, Tensor]]:
        """As `mixed_scatters`, each with its eigenvalues and eigenvectors."""
        if share not in self._mixed_axes:
            # The axes are as large as the scatters, which are not kept beside them.
            self._mixed_axes[share] = [
                (one._replace(scatter=one.scatter[:0]), *_axes(one.scatter))
                for one in self.mixed_scatters(share)
            ]
        return self._mixed_axes[share]

    @cached_property
    def _mixed_axes(self) -> dict[float, list[tuple[Mixed, Tensor, Tensor]]]:
        return {}

    @cached_property
    def axes(self) -> tuple[Tensor, Tensor]:
        """The eigenvalues [D], at least 0, and eigenvectors [D, D] of `within`."""
        return _axes(self.within())

    def merged(self, grain: str) -> Components:
        """Merge components of the same class and domain, or of the same class.

        `grain` is "domain", "class", or "client" for no merge. The merged scatter is
        the sum of the scatters and of the scatter between the merged means (Eq. 4).
        """
        if grain == "client":
            return self
        return self._of_domains if grain == "domain" else self._of_classes

    @cached_property
    def _of_classes(self) -> Components:
        return self._merged(torch.full_like(self.domains, -1))

    @cached_property
    def _of_domains(self) -> Components:
        return self._merged(self.domains)

    def _merged(self, domains: Tensor) -> Components:
        """Merge components of the same class and entry of `domains` [J]."""
        keys = torch.stack([self.labels, domains], dim=1)
        kept, group = keys.unique(dim=0, return_inverse=True)

        def summed(numbers: Tensor) -> Tensor:
            return numbers.new_zeros(len(kept)).index_add(0, group, numbers)

        whole = summed(self.weights)
        # Relative to the mean of all rows, so that data may lie far from the origin.
        share = (self.weights / whole[group])[:, None] * (self.means - self.origin)
        offsets = self.means.new_zeros(len(kept), self.dim).index_add(0, group, share)
        means = self.origin + offsets
        apart = self.weights.sqrt()[:, None] * (self.means - means[group])
        # A component that merges with none has moved by rounding alone, which would
        # count as a scatter if there is no other.
        apart[summed(torch.ones_like(group))[group] == 1] = 0
        labels, places = kept.unbind(dim=1)
        return replace(
            self,
            labels=labels,
            counts=summed(self.counts),
            sums=None if self.sums is None else whole,
            means=means,
            clients=torch.full_like(labels, -1),
            domains=places,
            scatter=None if self.scatter is None else self.scatter + apart.T @ apart,
        )

    def with_clients_as_domains(self) -> Components:
        """The same components, each client being a domain of its own."""
        numbers, places = self.clients.unique(return_inverse=True)
        names = tuple(map(str, numbers.tolist()))
        return replace(self, domains=places, domain_names=names)

    def holding(self, labels: Tensor, client: int, domain: int) -> Tensor:
        """The index of the component that holds each row of a client: Tensor of shape
        (n,).

        `labels` [n] are the classes of the rows. -1 stands for no component.
        """
        here = (self.clients == client) | (self.clients == -1)
        here &= (self.domains == domain) | (self.domains == -1)
        place = torch.full((self.num_classes,), -1)
        place[self.labels[here]] = torch.nonzero(here).flatten()
        return place[labels]


def _axes(scatter: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(scatter)
    return values.clamp(min=0), vectors


@dataclass(frozen=True)
class ScoredRows:
    """Rows of one client that a head is to score.

    Attributes
    ----------
    features : Tensor of shape (n, D)
    labels : Tensor of shape (n,), int64
    client, domain : int
        The client's number and the index of its domain, as in `Components`.
    inside : Tensor of shape (n,), bool
        Whether the statistics contain the row. If so, the row is scored by a head made
        without it; otherwise by the head of all rows.
    weights : Tensor of shape (n,), float64, or None
        The weight of each row; None if each has the weight 1.
    """

    features: Tensor
    labels: Tensor
    client: int
    domain: int
    inside: Tensor
    weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def divided(self, by: Tensor) -> ScoredRows:
        """The rows with their dimensions divided by `by` [D]."""
        return replace(self, features=self.features.double() / by)

    def part(self, rows: slice) -> ScoredRows:
        return replace(
            self,
            features=self.features[rows],
            labels=self.labels[rows],
            inside=self.inside[rows],
            weights=None if self.weights is None else self.weights[rows],
        )

    @property
    def taken(self) -> Tensor:
        """The weight of each row in the statistics, 0 outside: shape (n,), float64."""
        inside = self.inside.double()
        return inside if self.weights is None else inside * self.weights

    def summed(self, what: Tensor, kept: Any = slice(None)) -> Tensor:
        """The sum of `what` [..., m] over the m rows `kept`, by their weights.

        Numbers of rows stay whole numbers if the rows have no weights.
        """
        if self.weights is None:
            return what.sum(dim=-1)
        return what.double() @ self.weights[kept]

    def own(self, components: Components) -> Tensor:
        """The component that each row must be left out of: shape (n,); -1 for none."""
        component = components.holding(self.labels, self.client, self.domain)
        return torch.where(self.inside, component, torch.full_like(component, -1))


class ComponentBook:
    """Collects the components of all clients. `names` are the domains known before."""

    def __init__(self, names: tuple[str, ...]):
        self._names = names
        self._parts: list[Components] = []
        self._scatter: Tensor | None = None

    def add(self, statistics: Statistics, client: int, domain: str) -> None:
        """Add the components of a client's statistics.

        The sum of scatters is kept only if every client's statistics have scatters.
        """
        if domain not in self._names:
            self._names = (*self._names, domain)
        part = Components.of_client(statistics, client, domain, self._names)
        scatter = part.scatter
        if self._parts and scatter is not None and self._scatter is not None:
            scatter = self._scatter + scatter
        elif self._parts:
            scatter = None
        self._scatter = scatter
        self._parts.append(replace(part, scatter=None))

    def components(self) -> Components | None:
        """The components of all clients so far; None before the first client."""
        if not self._parts:
            return None
        joined = Components.joined(self._parts)
        return replace(joined, scatter=self._scatter, domain_names=self._names)
