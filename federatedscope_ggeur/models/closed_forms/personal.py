"""Clients' own heads: LDA with class means between the client's and the merged ones.

Class c of client k has the mean ``(n_kc mu_kc + kappa mu_c) / (n_kc + kappa)``. The
common covariance, its shrinkage and the priors are those of the head of all clients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from federatedscope_ggeur.geometry import Statistics

from ..heads import LinearHead
from .base import Seen, linear_head
from .components import Components, ScoredRows
from .lda import LinearDiscriminant, discriminant
from .left_out import DiscriminantLeftOut, Left
from .shrinkage import common_covariance

#: The kappas that leave-one-out tries. The first gives the head of all clients.
KAPPAS = (math.inf, 1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.0)


@dataclass(frozen=True)
class OwnMeans:
    """A client's own counts and means in the merged statistics.

    Attributes
    ----------
    counts : Tensor of shape (C,)
        The client's rows of each class; 0 for withheld classes.
    means : Tensor of shape (C, D), float64
        The mean of these rows of each class.
    """

    counts: Tensor
    means: Tensor

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, num_classes: int) -> OwnMeans:
        """Compute counts and means from the client's rows in the merged statistics."""
        counts = torch.bincount(labels, minlength=num_classes)
        sums = torch.zeros(num_classes, features.shape[1], dtype=torch.float64)
        sums.index_add_(0, labels, features.double())
        return cls(counts, sums / counts.clamp(min=1)[:, None])

    def drawn_to(self, means: Tensor, labels: Tensor, kappa: float) -> Tensor:
        """The client's means of the classes `labels` [J], pulled towards `means` [J,
        D].

        `means` are the merged means. A class without own rows gets its merged mean.
        """
        n = self.counts[labels].double()[:, None]
        if math.isinf(kappa):
            return means
        drawn = (n * self.means[labels] + kappa * means) / (n + kappa).clamp(min=1e-300)
        return torch.where(n > 0, drawn, means)


class PersonalLeftOut:
    """Scores a client's rows by its own head, leaving out each row in turn.

    Each kappa is one candidate.

    Notes
    -----
    Without a row x of class c, the merged mean is mu_c', and the client's mean is ``m'
    = ((n_kc - 1) mu_kc' + kappa mu_c') / (n_kc - 1 + kappa)``. The covariance is
    ``A - b z z'`` as in `DiscriminantLeftOut`. So with a = x - m' the squared distance
    to the own class is ``a' A^-1 a + b (a' A^-1 z)^2 / (1 - b q)``.
    """

    def __init__(self, of_all: DiscriminantLeftOut, shrinkage: float, own: OwnMeans):
        self._of_all, self._parts = of_all, of_all.parts
        self._shrinkage = shrinkage
        means = (own.means - self._parts.origin) @ of_all.basis
        self._own = OwnMeans(own.counts, means)

    def __call__(self, rows: ScoredRows) -> list[Tensor]:
        of_all = self._of_all
        left = of_all.left(rows)
        inverse, b = of_all.covariance(self._shrinkage, left)
        scores = []
        for kappa in KAPPAS:
            means = self._own.drawn_to(of_all.means, self._parts.labels, kappa)
            distances = of_all.distances(left, inverse, b, means)
            self._put_own(distances, left, inverse, b, kappa)
            scores.append(of_all.by_class(left.log_priors - distances / 2))
        return scores

    def _put_own(
        self, distances: Tensor, left: Left, inverse: Tensor, b: Tensor, kappa: float
    ) -> None:
        """Set each row's distance to its own class, whose mean excludes the row."""
        rows = torch.nonzero(left.growth > 0).flatten()
        component = left.own[rows]
        x, z = left.x[rows], left.z[rows]
        counts = self._parts.weights[component][:, None]
        merged = self._of_all.means[component] - z / (counts - 1)
        c = self._parts.labels[component]
        n = self._own.counts[c].double()[:, None]
        rest = n * self._own.means[c] - x
        mean = merged
        if not math.isinf(kappa):
            weight = n - 1 + kappa
            mean = (rest + kappa * merged) / weight.clamp(min=1e-300)
            mean = torch.where(weight > 0, mean, merged)
        a, zw = x - mean, z * inverse[rows]
        q = (zw * z).sum(dim=1)
        more = b[rows] / (1 - b[rows] * q).clamp(min=1e-12)
        distance = (a.square() * inverse[rows]).sum(dim=1)
        distance += more * (a * zw).sum(dim=1).square()
        distances[rows, component] = distance


class PersonalHeads:
    """Makes clients' own heads from one LDA, whose common parts are computed once.

    Parameters
    ----------
    form : LinearDiscriminant
        The LDA. Its shrinkage must be chosen already.
    components : Components
        The components of all clients.

    Attributes
    ----------
    scale : Tensor of shape (D,), or None
        The numbers by which `form` divides dimensions; None if it does not divide.
    """

    def __init__(self, form: LinearDiscriminant, components: Components):
        self._form, parts = form, components.merged("class")
        self.scale = parts.deviations() if form.standardize else None
        self._parts = parts if self.scale is None else parts.standardized

    def left_out(self, own: OwnMeans) -> PersonalLeftOut:
        """Make the scorer of a client's rows.

        The caller must divide these rows by `scale`.
        """
        return PersonalLeftOut(self._left_out_of_all, self._form.chosen, self._in(own))

    def head(self, own: OwnMeans, kappa: float, temperature: float = 1.0) -> LinearHead:
        """Compute a client's own head.

        Parameters
        ----------
        own : OwnMeans
        kappa : float
            The merged mean of a class counts like this many rows.
        temperature : float
            The number that scores are divided by.
        """
        seen, root = self._seen, self._root
        labels = torch.tensor(seen.classes)
        drawn = self._in(own).drawn_to(seen.means, labels, kappa)
        offsets = drawn - seen.origin
        logs = seen.log_priors(self._form.priors)
        directions = torch.cholesky_solve(offsets.T, root).T
        weight, bias = discriminant(offsets, seen.origin, directions, logs)
        if self.scale is not None:
            weight = weight / self.scale
        return linear_head(weight / temperature, bias / temperature, seen)

    def _in(self, own: OwnMeans) -> OwnMeans:
        """The client's means, divided by `scale` as `form` divides rows."""
        if self.scale is None:
            return own
        return OwnMeans(own.counts, own.means / self.scale)

    @cached_property
    def _left_out_of_all(self) -> DiscriminantLeftOut:
        form = self._form
        return DiscriminantLeftOut(self._parts, [form.chosen], form.priors)

    @cached_property
    def _seen(self) -> Seen:
        parts = self._parts
        counts = torch.zeros(parts.num_classes, dtype=torch.int64)
        counts[parts.labels] = parts.counts
        means = torch.zeros(parts.num_classes, parts.dim, dtype=torch.float64)
        means[parts.labels] = parts.means
        merged = Statistics.of_pooled(counts, means, scatter=parts.within())
        return Seen.of(merged, parts)

    @cached_property
    def _root(self) -> Tensor:
        """The Cholesky factor of the common covariance."""
        seen, chosen = self._seen, self._form.chosen
        _, root, _ = common_covariance(
            seen.within, int(seen.total), len(seen.classes), chosen
        )
        return root
