"""A linear head trained on the server, on random draws in Fisher's space."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.rng import torch_generator
from federatedscope_ggeur.settings import Key, amount, fraction, positive

from ..base import Model
from .base import (
    UNTUNED_SHRINKAGE,
    ClosedForm,
    Seen,
    linear_head,
    priors_key,
    register_closed_form,
)
from .shrinkage import common_covariance

#: The value of the column for biases. With 1, the loss would be so flat in the biases,
#: compared with the weights, that L-BFGS would take ten times as many steps.
_BIAS_COLUMN = 10.0
#: Training ends when no entry of the gradient is larger than the first number. If
#: rounding ends the line search earlier, the second number is enough.
_TOLERANCE, _STILL_OPTIMAL = 1e-9, 1e-6
_MOST_STEPS = 3000


@register_closed_form("fisher")
class FisherSynthesis(ClosedForm):
    """Softmax regression on rows ``V' x``, trained on draws from the class statistics.

    Draws of class c are ``z ~ N(V' mu_c, tau^2 V' Sigma_c V)``. The space is ``V =
    S^-1/2 U``. S is LDA's shrunk common covariance. U are the leading directions of the
    class means in ``S^-1/2 x``. They hold a share of the means' scatter. L-BFGS on all
    draws trains the head to its one optimum, with a penalty on the squared norm of the
    weights.

    Parameters
    ----------
    energy : float
        The share that U holds, 0 to 1.
    spread : float
        tau, the factor on the standard deviations of draws.
    samples : int
        Draws of each class.
    penalty : float
        The weight of the squared norm of the weights, relative to the cross-entropy.
    shrinkage : float
        The shrinkage of S, as for LDA.
    priors : {"counts", "none"}
        The weight of all draws of a class: its number of rows, or the same for all.

    References
    ----------
    "Gaussian-head one-shot federated learning" (GH-OFL), 2026 (arXiv 2602.01186). The
    default energy and tau are from there.
    """

    meaning = "linear head trained on the server, on draws in Fisher's space"
    source = "GH-OFL 2026"
    SETTINGS = (
        Key(
            "energy",
            0.995,
            "Fisher: share of the scatter between class means that the space keeps, "
            "from 0 to 1.",
            fraction(),
        ),
        Key(
            "spread",
            0.9,
            "Fisher: factor on the standard deviation of the draws.",
            positive,
        ),
        Key("samples", 100.0, "Fisher: number of draws for each class.", amount),
        Key(
            "penalty",
            0.001,
            "Fisher: weight of the squared norm of the weights beside the mean "
            "cross-entropy.",
            positive,
        ),
        Key(
            "shrinkage",
            UNTUNED_SHRINKAGE,
            "Fisher: the same as lda.shrinkage, for the covariance that is whitened.",
            fraction(),
        ),
        priors_key("Fisher: the same as lda.priors."),
    )
    NEEDS = "class"

    energy: float
    spread: float
    samples: int
    penalty: float
    shrinkage: float
    priors: str

    def work_out(self, seen: Seen) -> tuple[Model, dict]:
        common, _, report = common_covariance(
            seen.within, int(seen.total), len(seen.classes), self.shrinkage
        )
        whitening = _power(common, -0.5)
        shares = (seen.counts / seen.total).sqrt()[:, None]
        directions = self._leading(shares * seen.offsets @ whitening)
        space = whitening @ directions
        draws = [
            self._draw(seen, i, directions, space) for i in range(len(seen.classes))
        ]
        log_priors = seen.log_priors(self.priors)
        shares = log_priors.softmax(dim=0)
        weight, bias = train(torch.stack(draws), shares, self.penalty)
        weight = weight @ space.T
        head = linear_head(weight, bias - weight @ seen.origin, seen)
        return head, {
            **report,
            "dimensions": directions.shape[1],
            "draws_of_a_class": self.samples,
            "priors": self.priors,
        }

    def _leading(self, means: Tensor) -> Tensor:
        """Orthonormal columns [D, r] that hold the share `energy` of rows [C', D]."""
        _, values, directions = torch.linalg.svd(means, full_matrices=False)
        held = values.square().cumsum(dim=0)
        kept = int((held < self.energy * held[-1]).sum()) + 1
        return directions[:kept].T

    def _draw(self, seen: Seen, i: int, directions: Tensor, space: Tensor) -> Tensor:
        """Draw rows of the i-th class that has samples: Tensor of shape (samples, r).

        Noise is drawn in all D dimensions, and the matrix roots are symmetric. So the
        head does not depend on the basis of U or of a root.
        """
        c = seen.classes[i]
        covariance = space.T @ (seen.scatter(c) / seen.counts[i]) @ space
        noise = torch.randn(
            self.samples,
            seen.dim,
            dtype=torch.float64,
            generator=torch_generator(seen.seed, "fisher", c),
        )
        around = noise @ directions @ _power(covariance, 0.5)
        return seen.offsets[i] @ space + self.spread * around


def train(draws: Tensor, shares: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """The weights [C, r] and biases [C] that minimise the loss of draws [C, m, r].

    The loss is cross-entropy plus `penalty` |weights|^2. All draws of a class together
    have the weight of its entry in `shares` [C].

    Raises
    ------
    StatisticsError
        L-BFGS does not reach the optimum.
    """
    classes, samples, dim = draws.shape
    rows = torch.cat(
        [draws.flatten(0, 1), draws.new_full((classes * samples, 1), _BIAS_COLUMN)],
        dim=1,
    )
    counts = (shares / samples).repeat_interleave(samples)
    labels = torch.arange(classes).repeat_interleave(samples)
    weight = draws.new_zeros(classes, dim + 1).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weight],
        max_iter=_MOST_STEPS,
        tolerance_grad=_TOLERANCE,
        tolerance_change=0.0,
        history_size=100,
        line_search_fn="strong_wolfe",
    )

    def loss_with_gradient() -> Tensor:
        optimizer.zero_grad()
        losses = cross_entropy(rows @ weight.T, labels, reduction="none")
        loss = counts @ losses + penalty * weight[:, :dim].square().sum()
        loss.backward()
        return loss

    optimizer.step(loss_with_gradient)
    loss_with_gradient()
    steepest = float(weight.grad.abs().max())  # type: ignore[union-attr]  # it has one
    if not steepest <= _STILL_OPTIMAL:
        raise StatisticsError(
            "the training of the fisher head does not reach its optimum; set a "
            "smaller ggeur.fisher.spread, or a ggeur.fisher.penalty nearer to its "
            "default"
        )
    found = weight.detach()
    return found[:, :dim], _BIAS_COLUMN * found[:, dim]


def _power(matrix: Tensor, exponent: float) -> Tensor:
    """The symmetric power of a positive semi-definite matrix [D, D]."""
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * values.clamp(min=0) ** exponent @ vectors.T
