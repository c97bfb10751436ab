"""Ridge regression on one-hot labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, StatisticsError
from federatedscope_ggeur.settings import NOT_SET, Key, positive_or_not_set

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
    strength_key,
)
from .components import Components
from .left_out import LeftOut, RidgeLeftOut
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
    alpha : float, optional
        lambda itself, in place of a strength. The intercept is then penalised, too:
        ``A^-1 B`` on ``[x; 1]`` with ``A = sum [x;1][x;1]^T + alpha I``.
    standardize : bool
        Whether dimensions are divided by their standard deviations first.

    Raises
    ------
    ConfigError
        Both strength and alpha are given.

    Notes
    -----
    m is the overall mean, ``T = W + sum_c n_c d_c d_c^T`` the total scatter, and ``M =
    T + alpha I``. With alpha, weights w and intercept b of class c solve ::

        (T + N m m^T + alpha I) w + N m b = n_c mu_c N m^T w + (N + alpha) b = n_c

    These equations give ``M w = n_c d_c + alpha b m``. Inserting w into the second
    equation gives b. So no matrix holds the outer product of a mean far from the
    origin.
    """

    meaning = "ridge regression on one-hot labels, with an intercept"
    source = "Fed3R 2024, AFL 2025"
    SETTINGS = (
        strength_key(
            "Ridge regression on one-hot labels: number added to the eigenvalues of "
            "the Gram matrix, as a "
        ),
        Key(
            "alpha",
            NOT_SET,
            "Ridge regression, in place of strength: number added to the eigenvalues, "
            "without a factor (Fed3R, AFL); -1: not used.",
            positive_or_not_set,
        ),
        standardize_key("Ridge regression: "),
    )
    from_sums = takes_weights = True
    TUNED, GRID = "strength", STRENGTHS
    UNTUNED = UNTUNED_SHRINKAGE / (1 - UNTUNED_SHRINKAGE)

    strength: float | None
    alpha: float | None

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        if self.alpha is not None and self.strength is not None:
            raise ConfigError(
                "ggeur.ridge.alpha: cannot go with ggeur.ridge.strength, which says "
                "the same relative to the embeddings; set one of them"
            )

    @property
    def is_open(self) -> bool:
        return self.strength is None and self.alpha is None

    def described(self) -> dict[str, str | float]:
        if self.alpha is None:
            return super().described()
        return {"closed_form": self.name, "alpha": self.alpha}

    def left_out(self, components: Components) -> LeftOut:
        values = [form.chosen for form in self.candidates()]
        return RidgeLeftOut(components.merged("class"), values)

    def shows_means(self, statistics: Statistics) -> bool:
        seen = self.seen(statistics)
        added = self._strength(seen)
        if self.alpha is not None:
            spread = float(
                seen.within.trace() + seen.counts @ seen.offsets.square().sum(1)
            )
            if spread <= 0:
                return True
            added = self.alpha * seen.dim / spread
        return added / (1 + added) > MOST_SPHERICAL

    def _strength(self, seen: Seen) -> float:
        """The strength that is set, or that generalised cross-validation finds."""
        if not self.is_open:
            return self.chosen
        spread = float(seen.within.trace() + seen.counts @ seen.offsets.square().sum(1))
        added = ridge_by_gcv(seen.within, seen.counts, seen.offsets)
        return added * seen.dim / spread if spread > 0 else self.UNTUNED

    def work_out(self, seen: Seen) -> tuple[Model, dict]:
        n = seen.counts
        scatter = seen.within + (seen.offsets * n[:, None]).T @ seen.offsets
        if self.alpha is not None:
            return self._penalised(seen, scatter, self.alpha)
        strength, size = self._strength(seen), float(scatter.trace()) / seen.dim
        root = self._root(scatter, strength * size if size > 0 else 1.0, strength)
        weight = n[:, None] * torch.cholesky_solve(seen.offsets.T, root).T
        bias = n / seen.total - weight @ seen.origin
        return linear_head(weight, bias, seen), {"strength": float(strength)}

    def _penalised(
        self, seen: Seen, scatter: Tensor, alpha: float
    ) -> tuple[Model, dict]:
        n, total = seen.counts, seen.total
        root = self._root(scatter, alpha, alpha)
        along_mean = torch.cholesky_solve(seen.origin[:, None], root).flatten()
        directions = torch.cholesky_solve(seen.offsets.T, root).T
        bias = n * (1 - total * (directions @ seen.origin))
        bias /= total + alpha + total * alpha * (along_mean @ seen.origin)
        weight = n[:, None] * directions + alpha * torch.outer(bias, along_mean)
        return linear_head(weight, bias, seen), {"alpha": float(alpha)}

    def _root(self, scatter: Tensor, added: float, given: float) -> Tensor:
        identity = torch.eye(len(scatter), dtype=torch.float64)
        root = stable_cholesky(scatter + added * identity)
        if root is None:
            name = "strength" if self.alpha is None else "alpha"
            raise StatisticsError(
                f"ridge regression with {name} {given} cannot be solved, because its "
                f"matrix is singular up to rounding; raise ggeur.ridge.{name}"
            )
        return root
