"""A linear head trained on the server, on draws in Fisher's space."""

from __future__ import annotations

import torch
from torch import Tensor

from federatedscope_ggeur.models.base import Model
from federatedscope_ggeur.models.closed_forms.base import (
    ClosedForm,
    Seen,
    linear_head,
    register_closed_form,
)
from federatedscope_ggeur.models.closed_forms.choices import (
    UNTUNED_SHRINKAGE,
    priors_key,
)
from federatedscope_ggeur.models.closed_forms.shrinkage import common_covariance
from federatedscope_ggeur.rng import torch_generator
from federatedscope_ggeur.settings import Key, fraction, positive, whole


@register_closed_form("fisher")
class FisherSynthesis(ClosedForm):
    """Softmax regression on draws ``z ~ N(V' mu_c, tau^2 V' Sigma_c V)``, ``W V' x``.

    ``V = S^-1/2 U`` with LDA's common covariance S, shrunk, and the leading directions
    U of the class means in ``S^-1/2 x``, which hold a share of their scatter. It is
    trained to its one optimum, by L-BFGS on all draws; the squared norm of the weights
    counts with a thousandth.

    Parameters
    ----------
    energy : float
        The share that U holds, 0 to 1.
    spread : float
        tau.
    samples : int
        Draws of each class.
    steps : int
        Of training, on all draws at once.
    shrinkage : float
        Of S, as LDA's.
    priors : {"counts", "none"}
        What the draws of a class count for together: its rows, or the same for all.

    References
    ----------
    "Gaussian-head one-shot federated learning" (GH-OFL), 2026 (arXiv 2602.01186);
    energy and tau are its values.
    """

    meaning = "linear head trained on the server, on draws in Fisher's space"
    source = "GH-OFL 2026"
    SETTINGS = (
        Key(
            "energy",
            0.995,
            "Fisher: share of the class means' scatter that its space keeps, 0 to 1.",
            fraction(),
        ),
        Key(
            "spread",
            0.9,
            "Fisher: factor on the standard deviations of draws.",
            positive,
        ),
        Key("samples", 100.0, "Fisher: draws of each class.", whole(1, maximum=10**6)),
        Key(
            "steps",
            100.0,
            "Fisher: steps of training, on all draws.",
            whole(0, maximum=10**6),
        ),
        Key(
            "shrinkage",
            UNTUNED_SHRINKAGE,
            "Fisher: as lda.shrinkage, for the covariance that its space whitens.",
            fraction(),
        ),
        priors_key("Fisher: as lda.priors."),
    )
    NEEDS = "class"

    energy: float
    spread: float
    samples: int
    steps: int
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
        means = seen.offsets @ space
        bias = log_priors - means.square().sum(dim=1) / 2
        shares = log_priors.softmax(dim=0)
        weight, bias = train(means, bias, torch.stack(draws), shares, self.steps)
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
        """Of the i-th class seen: shape (samples, r).

        Noise is drawn in all D dimensions and the roots are symmetric: no choice of
        basis, of U or of a root, changes the head.
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


def train(
    weight: Tensor, bias: Tensor, draws: Tensor, shares: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """Weights [C, r] and biases [C] after `steps` on the cross-entropy of draws
    [C, m, r], of which those of a class count for its share [C].

    By Nesterov's method at the largest step that cannot diverge, 1/L, with L half the
    largest eigenvalue of the second moments of [x; 1] (Boehning, 1992). Nothing in it
    is decided by rounding, as a line search is.
    """
    classes, samples, dim = draws.shape
    rows, ones = draws.flatten(0, 1), draws.new_ones(classes * samples, 1)
    rows = torch.cat([rows, ones], dim=1)
    counts = (shares / samples).repeat_interleave(samples)[:, None]
    labels = torch.arange(classes).repeat_interleave(samples)
    rate = 2 / float(torch.linalg.eigvalsh(rows.T @ (counts * rows))[-1])
    now = torch.cat([weight, bias[:, None]], dim=1)
    ahead = now
    for step in range(steps):
        residual = (rows @ ahead.T).softmax(dim=1)
        residual[torch.arange(len(rows)), labels] -= 1
        before, now = now, ahead - rate * (counts * residual).T @ rows
        ahead = now + step / (step + 3) * (now - before)
    return now[:, :dim], now[:, dim]


def _power(matrix: Tensor, exponent: float) -> Tensor:
    """The symmetric power of a positive semi-definite matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * values.clamp(min=0) ** exponent @ vectors.T
