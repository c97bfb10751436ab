"""Heads worked out from class statistics, without training.

Nearest class means, linear and quadratic discriminants, ridge regression: functions of
the merged statistics alone, so every partition of the data gives the same head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.geometry import ClassStatistics, SummedStatistics
from federatedscope_ggeur.models.base import Model
from federatedscope_ggeur.models.linear import LinearHead
from federatedscope_ggeur.models.quadratic import QuadraticHead, pack
from federatedscope_ggeur.models.shrinkage import (
    class_root,
    common_covariance,
    stable_cholesky,
)

KINDS = ("ncm", "lda", "qda", "ridge")

#: How far below those of the seen classes the offset of an unseen class lies.
_BELOW = 10.0


@dataclass(frozen=True)
class ClosedFormSettings:
    """Which head, and its settings.

    Attributes
    ----------
    kind : str
        ``"ncm"``, ``"lda"``, ``"qda"`` or ``"ridge"``.
    shrinkage : float, optional
        lda, qda: share of the spherical covariance in the common one, 0 to 1; None: by
        Ledoit and Wolf's rule for Gaussian data.
    class_shrinkage : float
        qda: share of the common covariance in that of a class, 0 to 1.
    priors : bool
        lda, qda: priors by merged counts; False: the same for all classes seen.
    alpha : float
        ridge: weight of the squared norm, positive.
    """

    kind: str
    shrinkage: float | None = None
    class_shrinkage: float = 0.5
    priors: bool = True
    alpha: float = 1.0


@dataclass(frozen=True)
class ClosedForm:
    """A frozen float32 `head` in evaluation mode, and how it came about, as JSON."""

    model: Model
    report: dict[str, float | int | str]


def closed_form(
    statistics: ClassStatistics | SummedStatistics, settings: ClosedFormSettings
) -> ClosedForm:
    """The head of merged statistics.

    Parameters
    ----------
    statistics : ClassStatistics or SummedStatistics
        Of all clients; qda needs a scatter for each class.
    settings : ClosedFormSettings

    Returns
    -------
    ClosedForm
        Its logits are scores up to a term that all seen classes share: the mean of
        weights and biases (qda: offsets) over these is zero, which changes no class's
        probability. Classes without samples are never the largest.

    Raises
    ------
    StatisticsError
        No samples, an unknown kind or impossible setting, statistics that do not
        suffice, a covariance that is not positive definite, weights beyond float32.

    Notes
    -----
    With ``W`` the within-class scatter, N samples of C classes and S the common
    covariance, ``W/(N-C)`` shrunk to a multiple of the identity:

    - lda: ``x^T S^-1 mu_c - mu_c^T S^-1 mu_c / 2 + log pi_c``;
    - ncm: the same with ``S = I`` and without priors, the nearest mean;
    - qda: ``-(x-mu_c)^T S_c^-1 (x-mu_c) / 2 - log|S_c| / 2 + log pi_c``,
      ``S_c = (1-g) W_c/(n_c-1) + g S``, and ``S_c = S`` for a class of one sample;
    - ridge: ``A^-1 B`` on ``[x; 1]``, ``A = sum [x;1][x;1]^T + alpha I``, B the class
      sums of ``[x; 1]``.

    All of it in float64 and from the overall mean, so that data may lie far from the
    origin; rounded to float32 at the end.
    """
    _check(statistics, settings)
    seen = _Seen.of(statistics)
    report = {
        "rows": int(seen.total),
        "classes": len(seen.classes),
        "left_out": statistics.num_classes - len(seen.classes),
    }
    if settings.kind == "qda":
        model, details = _quadratic(statistics, seen, settings)
    else:
        work_out = {"ncm": _ncm, "lda": _lda, "ridge": _ridge}[settings.kind]
        weight, bias, details = work_out(seen, settings)
        model = _linear(weight, bias, seen, statistics.num_classes)
    if not all(torch.isfinite(p).all() for p in model.parameters()):
        raise StatisticsError(
            f"the {settings.kind} head has weights beyond the range of float32: scale "
            "the embeddings, e.g. to length 1"
        )
    return ClosedForm(model.eval().requires_grad_(False), {**report, **details})


def _check(
    statistics: ClassStatistics | SummedStatistics, settings: ClosedFormSettings
) -> None:
    if settings.kind not in KINDS:
        raise StatisticsError(
            f"no closed form is called {settings.kind!r}: ggeur.closed_form is one of "
            f"{', '.join(KINDS)}"
        )
    for key, value in (
        ("lda.shrinkage", settings.shrinkage),
        ("qda.shrinkage", settings.class_shrinkage),
    ):
        if value is not None and not 0 <= value <= 1:
            raise StatisticsError(f"ggeur.{key} must lie in 0 to 1, got {value}")
    if not 0 < settings.alpha < math.inf:
        raise StatisticsError(
            f"ggeur.ridge.alpha must be positive, got {settings.alpha}"
        )
    if not statistics.classes:
        raise StatisticsError(
            f"there is no {settings.kind} head of no samples: no client sent "
            "statistics of any class; lower ggeur.privacy.min_samples"
        )
    if settings.kind == "qda" and not isinstance(statistics, ClassStatistics):
        raise StatisticsError(
            "qda needs a covariance for each class, but the statistics are summed over "
            "classes: set ggeur.statistics to class, or ggeur.closed_form to lda"
        )


@dataclass(frozen=True)
class _Seen:
    """The C' classes with samples, from the overall mean; all float64."""

    classes: list[int]
    counts: Tensor  # [C']
    total: float  # N
    origin: Tensor  # [D], the mean of all samples
    offsets: Tensor  # [C', D], class means less the origin
    within: Tensor  # [D, D], the within-class scatter

    @classmethod
    def of(cls, statistics: ClassStatistics | SummedStatistics) -> _Seen:
        classes = statistics.classes
        if isinstance(statistics, ClassStatistics):
            statistics = SummedStatistics.from_classes(statistics)
        counts = statistics.counts[classes].double()
        means = statistics.means[classes]
        total = float(counts.sum())
        origin = (counts / total) @ means
        offsets = means - origin
        return cls(classes, counts, total, origin, offsets, statistics.scatter())

    @property
    def dim(self) -> int:
        return len(self.origin)

    def log_priors(self, by_counts: bool) -> Tensor:
        """Of shape (C',); zero if all are the same."""
        shares = self.counts / self.total if by_counts else torch.ones_like(self.counts)
        return shares.log()


def _ncm(seen: _Seen, settings: ClosedFormSettings) -> tuple[Tensor, Tensor, dict]:
    return *_discriminant(seen, seen.offsets, seen.log_priors(False)), {}


def _lda(seen: _Seen, settings: ClosedFormSettings) -> tuple[Tensor, Tensor, dict]:
    _, root, report = common_covariance(
        seen.within, int(seen.total), len(seen.classes), settings.shrinkage
    )
    directions = torch.cholesky_solve(seen.offsets.T, root).T
    log_priors = seen.log_priors(settings.priors)
    report["priors"] = _name_of(settings.priors)
    return *_discriminant(seen, directions, log_priors), report


def _discriminant(
    seen: _Seen, directions: Tensor, log_priors: Tensor
) -> tuple[Tensor, Tensor]:
    """Weights and biases of LDA's scores with ``S^-1 d_c`` as `directions` [C', D].

    ``z = x - m`` and ``d_c = mu_c - m`` in place of x and mu_c change the scores by a
    term without c.
    """
    at_origin = log_priors - (seen.offsets * directions).sum(dim=1) / 2
    weight = directions - directions.mean(dim=0)
    return weight, at_origin - weight @ seen.origin


def _ridge(seen: _Seen, settings: ClosedFormSettings) -> tuple[Tensor, Tensor, dict]:
    """Ridge regression on one-hot labels, its intercept penalised like a weight.

    With m the overall mean, ``T = W + sum_c n_c d_c d_c^T`` the total scatter and
    ``M = T + alpha I``, the normal equations of weights w and intercept b of class c ::

        (T + N m m^T + alpha I) w + N m b = n_c mu_c
        N m^T w + (N + alpha) b = n_c

    give ``M w = n_c d_c + alpha b m``, and b by putting w into the second: no matrix
    that holds the outer product of a mean far from the origin.
    """
    n, total, alpha = seen.counts, seen.total, settings.alpha
    scatter = seen.within + (seen.offsets * n[:, None]).T @ seen.offsets
    root = stable_cholesky(scatter + alpha * torch.eye(seen.dim, dtype=torch.float64))
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
    return weight, bias, {"alpha": float(alpha)}


def _linear(weight: Tensor, bias: Tensor, seen: _Seen, num_classes: int) -> LinearHead:
    """The head of weights [C', D] and biases [C'] of the classes seen."""
    model = LinearHead(seen.dim, num_classes)
    weight = weight - weight.mean(dim=0)
    bias = bias - bias.mean()
    with torch.no_grad():
        # The seen logits of any x add up to zero, so the largest is at least zero and
        # the smallest bias at most zero: with weights of zero this is never reached.
        model.classifier.weight.zero_()
        model.classifier.bias.fill_(float(bias.min()) - _BELOW)
        model.classifier.weight[seen.classes] = weight.float()
        model.classifier.bias[seen.classes] = bias.float()
    return model


def _quadratic(
    statistics: ClassStatistics, seen: _Seen, settings: ClosedFormSettings
) -> tuple[QuadraticHead, dict]:
    common, _, report = common_covariance(
        seen.within, int(seen.total), len(seen.classes), settings.shrinkage
    )
    model = QuadraticHead(seen.dim, statistics.num_classes).requires_grad_(False)
    identity = torch.eye(seen.dim, dtype=torch.float64)
    offsets = seen.log_priors(settings.priors)
    for i, c in enumerate(seen.classes):
        root = class_root(statistics, c, common, settings.class_shrinkage)
        inverse_root = torch.linalg.solve_triangular(root, identity, upper=False)
        offsets[i] -= root.diagonal().log().sum()
        model.means[c] = statistics.means[c].float()
        model.factors[c] = pack(inverse_root).float()
    offsets -= offsets.mean()
    model.offsets[seen.classes] = offsets.float()
    _leave_out_unseen(model, seen.classes)
    report["class_shrinkage"] = float(settings.class_shrinkage)
    report["priors"] = _name_of(settings.priors)
    return model, report


def _leave_out_unseen(model: QuadraticHead, seen: list[int]) -> None:
    """Let each other class lose to the first seen one at every x.

    It has the same mean, a lower offset and twice the factor, which quadruples the
    squared distance to the bit: were that the same, a large one would swallow the
    difference of the offsets.
    """
    first = seen[0]
    for c in set(range(model.num_classes)) - set(seen):
        model.means[c] = model.means[first]
        model.factors[c] = 2 * model.factors[first]
        model.offsets[c] = model.offsets[first] - _BELOW


def _name_of(priors: bool) -> str:
    return "counts" if priors else "none"
