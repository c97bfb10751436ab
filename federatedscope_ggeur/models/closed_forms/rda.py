"""Regularized discriminant analysis: each class has a covariance of its own."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.settings import Key, one_of, positive_or_not_set

from ..base import Model
from .base import (
    ClosedForm,
    Seen,
    priors_key,
    register_closed_form,
    shrinkage_key,
)
from .components import Components, ScoredRows
from .left_out import LEAST, DiscriminantLeftOut, Left, LeftOut
from .mixture import MixtureDiscriminant, log_shares, mixture_head
from .shrinkage import common_covariance, stable_cholesky

#: How often the common scatter counts, see `RegularizedDiscriminant`. The larger value
#: comes first: it wins a tie.
COMMON = (27.0, 9.0)


@register_closed_form("rda")
class RegularizedDiscriminant(MixtureDiscriminant):
    """Regularized discriminant analysis (RDA): classes have covariances of their own.

    The score of class c is ``log pi_c - (x - mu_c)^T S_c^-1 (x - mu_c) / 2 - log
    det(S_c) / 2``.

    S_c is ``(W_c + k W) / (n_c + k N)``, shrunk towards a multiple of the identity as
    in LDA. W_c and W are the scatters of class c and of all classes, n_c and N their
    numbers of rows. k is `common` / C. So in a class of average size the common scatter
    counts like `common` times the class's own rows, and a smaller class leans more on
    it. The model has C x D x D numbers.

    With components of domains or clients, the score of the mixture discriminant with
    these components, and the same shrinkage, is added: the logarithmic opinion pool of
    both. Its probabilities are too sure without a temperature.

    Parameters
    ----------
    components : {"class", "domain", "client"}
        "class": RDA alone.
    common : float, optional
        If None, leave-one-out chooses 27 or 9; if that is impossible, it is 27.
    shrinkage : float, optional
        Share of the spherical covariance, 0 to 1. If None, leave-one-out chooses the
        share; if that is impossible, it is 0.3.
    priors : {"counts", "none"}
        As for the mixture discriminant.

    References
    ----------
    Friedman, "Regularized discriminant analysis", 1989. Genest, Zidek, "Combining
    probability distributions", 1986.
    """

    meaning = "regularized discriminant: a covariance for each class, near the common"
    source = "Friedman 1989"
    SETTINGS = (
        Key(
            "components",
            "class",
            "Regularized discriminant: a mean for each class. domain, client: the "
            "scores of the mixture discriminant of these components are added.",
            one_of("class", "domain", "client"),
        ),
        Key(
            "common",
            None,
            "Regularized discriminant: how strongly the covariance of each class is "
            "drawn to the common one. 27: in a class of average size the common one "
            "counts like 27 times the class's rows; -1: leave-one-out chooses 27 or 9.",
            positive_or_not_set,
        ),
        shrinkage_key("Regularized discriminant: ", "each class's"),
        priors_key("Regularized discriminant: the same as lda.priors."),
    )
    NEEDS = "class"
    takes_prior = False
    GRID = (0.7, 0.3, 0.1, 0.03, 0.01, 0.001)

    common: float | None

    @property
    def is_open(self) -> bool:
        return self.shrinkage is None or self.common is None

    def candidates(self) -> tuple[ClosedForm, ...]:
        commons, grid = self._strengths()
        return tuple(self._with(common, g) for g in grid for common in commons)

    def _strengths(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The values of `common` and of `shrinkage` to try."""
        return (
            COMMON if self.common is None else (self.common,),
            self.grid if self.shrinkage is None else (self.shrinkage,),
        )

    def untuned(self) -> ClosedForm:
        return self._with(self.common or COMMON[0], self.chosen)

    def _with(self, common: float, shrinkage: float) -> RegularizedDiscriminant:
        other = copy.copy(self)
        other.common, other.shrinkage = common, shrinkage
        return other

    def described(self) -> dict[str, str | float]:
        said, common = super().described(), self.common or COMMON[0]
        return {**said, "components": self.components, "common": common}

    def left_out(self, components: Components) -> LeftOut:
        parts, (commons, grid) = components.merged("class"), self._strengths()
        scores = [
            ClassLeftOut(parts, common / parts.num_classes, grid, self.priors)
            for common in commons
        ]
        mixture = None
        if self.grain != "class":
            grouped = components.merged(self.grain)
            mixture = DiscriminantLeftOut(grouped, grid, self.priors)

        def score(rows: ScoredRows) -> list[Tensor]:
            by_shrinkage = list(zip(*[each(rows) for each in scores]))
            if mixture is None:
                return [one for some in by_shrinkage for one in some]
            added = mixture(rows)
            return [
                one + more for some, more in zip(by_shrinkage, added) for one in some
            ]

        return score

    def work_out(self, seen: Seen) -> tuple[Model, dict]:
        parts = seen.components.merged(self.grain)
        # The head holds its centre in float32, so all is relative to that.
        origin = parts.origin.float().double()
        common = self.common or COMMON[0]
        of_class = parts.merged("class").with_scatters_of(seen.statistics)
        weight, bias, precisions = self._of_classes(of_class, origin, common)
        weight, bias = weight[parts.labels], bias[parts.labels]
        if self.grain != "class":
            added, at_origin = self._of_mixture(parts, origin)
            weight, bias = weight + added, bias + at_origin
        weight, bias, precisions = _centred(parts, weight, bias, precisions)
        model = mixture_head(
            weight, bias, parts.labels, parts.num_classes, origin, precisions
        )
        return model, {
            "shrinkage": self.chosen,
            "shrinkage_rule": "set",
            "common": common,
            "components": self.components,
            "component_count": len(parts.counts),
            "priors": self.priors,
        }

    def _of_classes(
        self, parts: Components, origin: Tensor, common: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Weights [C, D], biases [C] and precisions [C, D, D] of RDA's scores.

        The scores are of rows less `origin` [D]. `parts` has a component for each
        class.
        """
        logs = log_shares(parts.weights, parts.labels, parts.num_classes, self.priors)
        offsets, g = parts.means - origin, self.chosen
        weight = offsets.new_zeros(parts.num_classes, parts.dim)
        bias = offsets.new_zeros(parts.num_classes)
        precisions = offsets.new_zeros(parts.num_classes, parts.dim, parts.dim)
        mixed = parts.mixed_scatters(common / parts.num_classes)
        for offset, log_prior, (c, scatter, rows) in zip(offsets, logs, mixed):
            spherical = float(scatter.trace()) / parts.dim
            covariance = (1 - g) * scatter / rows
            covariance.diagonal().add_(g * spherical / rows if spherical else 1.0)
            root = stable_cholesky(covariance)
            if root is None:
                raise StatisticsError(
                    f"the covariance of class {c} is singular with a shrinkage of {g}; "
                    "raise ggeur.rda.shrinkage, or set it to -1 to have it chosen"
                )
            precisions[c] = torch.cholesky_inverse(root)
            weight[c] = precisions[c] @ offset
            bias[c] = log_prior - weight[c] @ offset / 2 - root.diagonal().log().sum()
        return weight, bias, precisions

    def _of_mixture(self, parts: Components, origin: Tensor) -> tuple[Tensor, Tensor]:
        """Weights [J, D] and biases [J] of the mixture's scores, less `origin`."""
        logs = log_shares(parts.weights, parts.labels, parts.num_classes, self.priors)
        _, root, _ = common_covariance(
            parts.within(), parts.total, len(parts.counts), self.chosen, self.name
        )
        offsets = parts.means - origin
        weight = torch.cholesky_solve(offsets.T, root).T
        return weight, logs - (offsets * weight).sum(dim=1) / 2


def _centred(
    parts: Components, weight: Tensor, bias: Tensor, precisions: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The same scores less their mean over classes.

    So the classes' scores of any x add up to zero or more. Weights [J, D] and biases
    [J] are those of components, `precisions` [C, D, D] of classes.
    """
    classes = parts.classes
    share = 1 / len(classes) / parts.labels.bincount()[parts.labels].double()
    precisions = precisions.clone()
    precisions[classes] -= precisions[classes].mean(dim=0)
    return weight - share @ weight, bias - share @ bias, precisions


class ClassLeftOut(DiscriminantLeftOut):
    """Scores rows by `RegularizedDiscriminant`, leaving out each row in turn.

    Parameters
    ----------
    parts : Components
        One component for each class. They must have `class_scatters`.
    share : float
        k.
    shrinkages : tuple of float
    priors : {"counts", "none"}

    Notes
    -----
    Without a row x of class y, with z and ``p = w n_j/(n_j - w)`` as there, ``W_c + k
    W`` loses ``(k + [c = y]) p z z'``, and ``n_c + k N`` loses ``(k + [c = y]) w``. So
    the covariance of each class is ``A_c - b_c z z'``, with A_c diagonal in the
    eigenbasis of ``W_c + k W``. Its determinant is ``det(A_c) (1 - b_c z' A_c^-1 z)``.
    """

    def __init__(
        self,
        parts: Components,
        share: float,
        shrinkages: tuple[float, ...],
        priors: str,
    ):
        # Rows stay in their own basis: each class has another one.
        super().__init__(parts, None, priors)
        self._values = parts.within().diagonal()
        self._share, self._given = share, shrinkages

    def __call__(self, rows: ScoredRows) -> list[Tensor]:
        left = self.left(rows)
        taken = rows.taken * (left.own >= 0)
        # Rows of a client have few classes: turning these means is cheaper than
        # turning z.
        kept, place = left.own.clamp(min=0).unique(return_inverse=True)
        shares = (left.growth > 0)[:, None]
        scores = [torch.empty_like(left.log_priors) for _ in self._given]
        axes = self.parts.mixed_axes(self._share)
        for here, (mixed, values, vectors) in enumerate(axes):
            share = self._share + (left.own == here).double()
            x = left.x @ vectors
            z = (x - (self.means[kept] @ vectors)[place]) * shares
            mean = self.means[here : here + 1] @ vectors
            turned = left._replace(x=x, z=z, part=share * left.part)
            rest = mixed.rows - share * taken
            for g, into in zip(self._given, scores):
                into[:, here] = self._scores(g, turned, values, rest, here, mean)
        return [self.by_class(one) for one in scores]

    def _scores(
        self,
        g: float,
        left: Left,
        values: Tensor,
        rows: Tensor,
        here: int,
        mean: Tensor,
    ) -> Tensor:
        """The scores [n] of one class, the component `here`, with its `mean` [1, D].

        `values` [D] are its eigenvalues, and `rows` [n] its ``n_c + k N`` without each
        row.
        """
        size = values.sum() - left.part * left.z.square().sum(dim=1)
        variances = (1 - g) * values + (g * size / self.parts.dim)[:, None]
        variances = variances / rows[:, None]
        variances = variances.masked_fill(left.plain[:, None], 1.0)
        b = ((1 - g) * left.part / rows).masked_fill(left.plain, 0.0)
        inverse = 1 / variances
        q = (left.z.square() * inverse).sum(dim=1)
        kept = (1 - b * q).clamp(min=LEAST)
        distances = self.distances(left, inverse, b, mean)[:, 0]
        to_own = left.growth.square() * (q + b / kept * q.square())
        is_own = (left.own == here) & (left.growth > 0)
        distances = torch.where(is_own, to_own, distances)
        determinant = variances.log().sum(dim=1) + kept.log()
        return left.log_priors[:, here] - (distances + determinant) / 2
