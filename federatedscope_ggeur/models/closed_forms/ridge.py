"""Ridge regression on one-hot labels."""

from __future__ import annotations

import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.settings import Key, positive_or_not_set

from ..base import Model
from .base import (
    MOST_SPHERICAL,
    STRENGTHS,
    UNTUNED_SHRINKAGE,
    ClosedForm,
    Seen,
    Statistics,
    linear_head,
    register_closed_form,
    standardize_key,
)
from .components import Components
from .left_out import LEAST, LeftOut, RidgeLeftOut
from .new_rows import NewRows
from .shrinkage import ridge_by_gcv, stable_cholesky


@register_closed_form("ridge")
class RidgeRegression(ClosedForm):
    """Ridge regression on one-hot labels.

    The weights are ``(T + lambda I)^-1 B`` for centred rows.

    T is the scatter of all rows about their mean. B holds the sums of centred rows by
    class. The intercepts fit the means.

    Parameters
    ----------
    strength : float, optional
        lambda as a multiple of the mean eigenvalue of T, so that the scale of
        embeddings does not matter. If None, leave-one-out chooses the strength, or
        generalised cross-validation if no rows can be left out.
    standardize : bool
        Whether dimensions are divided by their standard deviations first.
    """

    meaning = "ridge regression on one-hot labels, with an intercept"
    source = "Fed3R 2024, AFL 2025"
    SETTINGS = (
        Key(
            "strength",
            None,
            "Ridge regression on one-hot labels: number added to the eigenvalues of "
            "the Gram matrix, as a multiple of their mean; -1: leave-one-out chooses "
            "it.",
            positive_or_not_set,
        ),
        standardize_key("Ridge regression: "),
    )
    from_sums = takes_weights = True
    TUNED, GRID = "strength", STRENGTHS
    UNTUNED = UNTUNED_SHRINKAGE / (1 - UNTUNED_SHRINKAGE)

    strength: float | None

    def left_out(self, components: Components) -> LeftOut:
        values = [form.chosen for form in self.candidates()]
        return RidgeLeftOut(components.merged("class"), values)

    def shows_means(self, statistics: Statistics) -> bool:
        added = self._strength(self.seen(statistics))
        return added / (1 + added) > MOST_SPHERICAL

    def _strength(self, seen: Seen) -> float:
        """The strength that is set, or that generalised cross-validation finds."""
        if not self.is_open:
            return self.chosen
        spread = float(seen.within.trace() + seen.counts @ seen.offsets.square().sum(1))
        added = ridge_by_gcv(seen.within, seen.counts, seen.offsets, seen.rows)
        return added * seen.dim / spread if spread > 0 else self.UNTUNED

    def work_out(self, seen: Seen) -> tuple[Model, dict]:
        n = seen.counts
        root, strength = self._root(seen)
        weight = n[:, None] * torch.cholesky_solve(seen.offsets.T, root).T
        bias = n / seen.total - weight @ seen.origin
        return linear_head(weight, bias, seen), {"strength": float(strength)}

    def new_rows(self, seen: Seen) -> NewRows | None:
        """See `ClosedForm.new_rows`.

        The score of a row by all others is ``(f - h y) / (1 - h)``, with its score f,
        its one-hot label y, and its leverage h. The rows of a class have the mean
        leverage that they would have if all classes had one scatter; or, if that is too
        much for some, the mean over all rows.
        """
        n = seen.counts
        root, _ = self._root(seen)
        directions = torch.cholesky_solve(seen.offsets.T, root)
        within = float(torch.cholesky_solve(seen.within, root).trace())
        of_means = (seen.offsets * directions.T).sum(dim=1)
        leverages = (1 + within) / seen.total + of_means
        if not (leverages < 1 - LEAST).all():
            leverages = torch.full_like(n, float(n @ leverages / seen.total))
        if not within > 0 or not (leverages < 1 - LEAST).all():
            return None
        means = seen.offsets @ directions * n + n / seen.total
        means = (means - torch.diag(leverages)) / (1 - leverages)[:, None]
        spread = directions.T @ seen.within @ directions / seen.total
        return NewRows(n, means, spread * n.outer(n), 1 / (1 - leverages))

    def _root(self, seen: Seen) -> tuple[Tensor, float]:
        """The Cholesky factor of ``T + lambda I``, and the strength."""
        n = seen.counts
        scatter = seen.within + (seen.offsets * n[:, None]).T @ seen.offsets
        strength, size = self._strength(seen), float(scatter.trace()) / seen.dim
        added = strength * size if size > 0 else 1.0
        identity = torch.eye(len(scatter), dtype=torch.float64)
        root = stable_cholesky(scatter + added * identity)
        if root is None:
            raise StatisticsError(
                f"ridge regression with strength {strength} cannot be solved, because "
                "its matrix is singular up to rounding; raise ggeur.ridge.strength"
            )
        return root, strength
