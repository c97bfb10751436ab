"""Ridge regression on one-hot labels."""

from __future__ import annotations

import torch

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.models.base import Model
from federatedscope_ggeur.models.closed_forms.base import (
    ClosedForm,
    Seen,
    linear_head,
    register_closed_form,
)
from federatedscope_ggeur.models.closed_forms.shrinkage import stable_cholesky
from federatedscope_ggeur.settings import Key, positive


@register_closed_form("ridge")
class RidgeRegression(ClosedForm):
    """``A^-1 B`` on ``[x; 1]``: its intercept is penalised like a weight.

    ``A = sum [x;1][x;1]^T + alpha I``, B the class sums of ``[x; 1]``.

    Parameters
    ----------
    alpha : float
        Weight of the squared norm, positive.

    Notes
    -----
    With m the overall mean, ``T = W + sum_c n_c d_c d_c^T`` the total scatter and
    ``M = T + alpha I``, the normal equations of weights w and intercept b of class c ::

        (T + N m m^T + alpha I) w + N m b = n_c mu_c
        N m^T w + (N + alpha) b = n_c

    give ``M w = n_c d_c + alpha b m``, and b by putting w into the second: no matrix
    that holds the outer product of a mean far from the origin.
    """

    meaning = "ridge regression on one-hot labels, with an intercept"
    source = "Fed3R 2024, AFL 2025"
    SETTINGS = (
        Key(
            "alpha",
            1.0,
            "Ridge regression on one-hot labels: weight of the squared norm.",
            positive,
        ),
    )

    alpha: float

    def work_out(self, seen: Seen) -> tuple[Model, dict]:
        n, total, alpha = seen.counts, seen.total, self.alpha
        scatter = seen.within + (seen.offsets * n[:, None]).T @ seen.offsets
        identity = torch.eye(seen.dim, dtype=torch.float64)
        root = stable_cholesky(scatter + alpha * identity)
        if root is None:
            raise StatisticsError(
                f"ridge regression with alpha {alpha} is singular to rounding: raise "
                "ggeur.ridge.alpha"
            )
        along_mean = torch.cholesky_solve(seen.origin[:, None], root).flatten()
        directions = torch.cholesky_solve(seen.offsets.T, root).T
        bias = n * (1 - total * (directions @ seen.origin))
        bias /= total + alpha + total * alpha * (along_mean @ seen.origin)
        weight = n[:, None] * directions + alpha * torch.outer(bias, along_mean)
        return linear_head(weight, bias, seen), {"alpha": float(alpha)}
