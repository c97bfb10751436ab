"""The merged statistics of the classes with samples, for closed forms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from federatedscope_ggeur.geometry import Statistics

from .components import Components, deviations


@dataclass(frozen=True)
class Seen:
    """The input of a closed form: statistics of the C' classes that have samples.

    Attributes
    ----------
    statistics : Statistics
        The merged statistics of all clients. They have the scatters that the form's
        `NEEDS` names. All tensors below are float64.
    classes : list of int
        The C' classes with samples, ascending. Row i of each tensor below belongs to
        `classes[i]`.
    counts : Tensor of shape (C',)
        Rows of each class, or the sums of their weights.
    total : float
        N, the number of all rows, or the sum of their weights.
    means : Tensor of shape (C', D)
        Class means.
    origin : Tensor of shape (D,)
        The mean of all rows.
    offsets : Tensor of shape (C', D)
        Class means minus `origin`. Work with these: embeddings may lie far from zero.
    components : Components
        Counts, means and scatters of each class and client or domain, if the form's
        `grain` asks for them; otherwise of each class.
    seed : int
        The seed of every random draw.
    within : Tensor of shape (D, D)
        The scatter of all rows around the means of their classes. Only for `NEEDS`
        "pooled" or "class".
    dim : int
        The dimension D.
    num_classes : int
        C, including classes without samples.
    """

    statistics: Statistics
    classes: list[int]
    counts: Tensor
    total: float
    means: Tensor
    origin: Tensor
    offsets: Tensor
    components: Components
    seed: int

    @classmethod
    def of(
        cls, statistics: Statistics, components: Components | None = None, seed: int = 0
    ) -> Seen:
        classes = statistics.classes
        counts, means = statistics.weights[classes], statistics.means[classes]
        total = float(counts.sum())
        origin = (counts / total) @ means
        offsets = means - origin
        if components is None:
            components = Components.of_classes(statistics)
        return cls(
            statistics, classes, counts, total, means, origin, offsets, components, seed
        )

    def deviations(self) -> Tensor:
        """The standard deviation of each dimension over all rows: shape (D,)."""
        between = self.counts @ self.offsets.square()
        return deviations((self.within.diagonal() + between) / self.total, self.origin)

    def divided(self, by: Tensor) -> Seen:
        """The statistics of the same rows with dimensions divided by `by` [D]."""
        nowhere = torch.zeros_like(self.origin)
        statistics = self.statistics.mapped(nowhere, lambda rows: rows / by)
        return Seen.of(statistics, self.components.divided(by), self.seed)

    @cached_property
    def within(self) -> Tensor:
        """The within-class scatter: shape (D, D). For `NEEDS` "pooled" or "class"."""
        return self.statistics.scatter()

    @property
    def components_of_classes(self) -> Components:
        """One component for each class, without a scatter."""
        return Components.of_classes(self.statistics.to("means"))

    @property
    def dim(self) -> int:
        return len(self.origin)

    @property
    def num_classes(self) -> int:
        """C, the number of classes, including those without samples."""
        return self.statistics.num_classes

    def scatter(self, c: int) -> Tensor:
        """The scatter of class c alone: shape (D, D). Only for `NEEDS` "class"."""
        return self.statistics.scatter(c)

    def log_priors(self, priors: str) -> Tensor:
        """Log priors of shape (C',). ``"none"`` gives zeros, for equal priors."""
        if priors == "none":
            return torch.zeros_like(self.counts)
        return (self.counts / self.total).log()
