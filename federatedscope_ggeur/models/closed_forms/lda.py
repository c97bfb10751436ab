"""Linear discriminant analysis (LDA): class means and one common covariance.

The nearest-class-mean head: a row gets the class with the nearest mean.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..base import Model
from .base import (
    MOST_SPHERICAL,
    SHRINKAGES,
    UNTUNED_SHRINKAGE,
    ClosedForm,
    Seen,
    Statistics,
    linear_head,
    priors_key,
    register_closed_form,
    shrinkage_key,
    standardize_key,
)
from .components import Components
from .left_out import LEAST, DiscriminantLeftOut, LeftOut
from .new_rows import NewRows
from .shrinkage import common_covariance, ridge_by_gcv


@register_closed_form("lda")
class LinearDiscriminant(ClosedForm):
    """Linear discriminant analysis (LDA): class means and one common covariance S.

    The score of class c is ``x^T S^-1 mu_c - mu_c^T S^-1 mu_c / 2 + log pi_c``.

    S is the common covariance ``W/(N-C)``, shrunk towards a multiple of the identity. W
    is the within-class scatter of N samples of C classes.

    Parameters
    ----------
    shrinkage : float, optional
        Share of the spherical covariance in the common one, 0 to 1. If None,
        leave-one-out chooses the share, or generalised cross-validation if no rows can
        be left out.
    priors : {"counts", "none"}
        Whether the prior of a class follows the merged counts, or all seen classes have
        equal priors.
    standardize : bool
        Whether dimensions are divided by their standard deviations first.
    """

    meaning = "linear discriminant: one common covariance"
    source = "Fisher; FedCGS 2025"
    SETTINGS = (
        shrinkage_key("LDA: "),
        priors_key(
            "LDA: class priors. counts: by the merged counts. none: equal ones."
        ),
        standardize_key("LDA: "),
    )

    from_sums = from_noise = True
    takes_weights = takes_prior = takes_ensemble = True
    TUNED, GRID, UNTUNED = "shrinkage", SHRINKAGES, UNTUNED_SHRINKAGE

    shrinkage: float | None
    priors: str

    def described(self) -> dict[str, str | float]:
        mixed = self.known is not None and self.known.ensemble
        more = self.known.described() if self.known and mixed else {}
        return {**super().described(), **more}

    def left_out(self, components: Components) -> LeftOut:
        score = discriminant_left_out(self, components.merged("class"), self.priors)
        return score if self.known is None else self.known.with_ensemble(score)

    def work_out(self, seen: Seen) -> tuple[Model, dict]:
        _, root, report = self._covariance(seen)
        known = self.known
        if known is not None and known.prior:
            seen, moved = known.moved_seen(seen)
            report = {**report, **moved}
        directions = torch.cholesky_solve(seen.offsets.T, root).T
        logs = seen.log_priors(self.priors)
        scores = discriminant(seen.offsets, seen.origin, directions, logs)
        head: Model = linear_head(*scores, seen)
        if known is not None and known.ensemble:
            head = known.ensemble_of(head)
            report = {**report, **known.described()}
        return head, {**report, "priors": self.priors}

    def new_rows(self, seen: Seen) -> NewRows | None:
        """See `ClosedForm.new_rows`.

        A row has moved its class's mean towards itself, and the covariance to its own
        direction. With ``t = tr(S^-1 W) / (N - C)`` and the shrinkage rho, the scores
        of a new row spread ``1 / (1 - g)`` times as far, ``g = (1 - rho) t / (N - C)``,
        and that of its own class c is lower by ``t / (1 - g) / n_c`` in the mean.
        """
        degrees = seen.total - len(seen.classes)
        if self.known is not None or degrees <= 0 or not seen.within.trace() > 0:
            return None
        _, root, report = self._covariance(seen)
        own = seen.within / degrees
        trace = float(torch.cholesky_solve(own, root).trace())
        unseen = 1 - (1 - report["shrinkage"]) * trace / degrees
        if unseen <= LEAST:
            return None
        directions = torch.cholesky_solve(seen.offsets.T, root)
        means = seen.offsets @ directions
        means -= means.diagonal() / 2 - seen.log_priors(self.priors)
        means -= torch.diag(trace / unseen / seen.counts)
        spread = directions.T @ own @ directions
        scales = torch.full_like(seen.counts, 1 / unseen)
        return NewRows(seen.counts, means, spread, scales)

    def _covariance(self, seen: Seen) -> tuple[Tensor, Tensor, dict]:
        """The result of `common_covariance`, with the shrinkage that the settings ask
        for.

        LDA with ``W + kappa I`` and ridge regression with ``T + kappa I`` span the same
        directions. So generalised cross-validation for ridge regression also serves
        LDA.
        """
        rows, classes = seen.total, len(seen.classes)
        if self.shrinkage is not None:
            return common_covariance(seen.within, rows, classes, self.shrinkage)
        added = ridge_by_gcv(seen.within, seen.counts, seen.offsets, seen.rows)
        size = float(seen.within.trace()) / seen.dim
        shrinkage = added / (added + size) if added + size > 0 else 1.0
        shrunk = common_covariance(seen.within, rows, classes, shrinkage)
        if shrunk[2]["shrinkage_rule"] == "set":
            shrunk[2]["shrinkage_rule"] = "generalised cross-validation"
        return shrunk

    def shows_means(self, statistics: Statistics) -> bool:
        if self.shrinkage is not None:
            return self.shrinkage > MOST_SPHERICAL
        _, _, report = self._covariance(self.seen(statistics))
        return float(report["shrinkage"]) > MOST_SPHERICAL


def discriminant(
    offsets: Tensor, origin: Tensor, directions: Tensor, log_priors: Tensor
) -> tuple[Tensor, Tensor]:
    """Weights and biases of LDA's scores, given ``S^-1 d_c`` as `directions` [C', D].

    The scores use ``z = x - m`` and ``d_c = mu_c - m`` in place of x and mu_c. This
    changes them by a term that is the same for all classes. `offsets` [C', D] are the
    d_c, and `origin` [D] is m. In a mixture, components take the place of classes.
    """
    at_origin = log_priors - (offsets * directions).sum(dim=1) / 2
    weight = directions - directions.mean(dim=0)
    return weight, at_origin - weight @ origin


def discriminant_left_out(form: ClosedForm, parts: Components, priors: str) -> LeftOut:
    """The scores of left-out rows by each candidate of `form`, LDA or the mixture."""
    values = [one.chosen for one in form.candidates()]
    if form.known is not None and form.known.prior:
        return form.known.prior_left_out(parts, values, priors)
    return DiscriminantLeftOut(parts, values, priors)


@register_closed_form("ncm")
class NearestMean(ClosedForm):
    """The nearest class mean: LDA with ``S = I`` and equal priors."""

    meaning = "nearest class mean"
    source = "FedNCM 2023"
    NEEDS = "means"
    from_sums = from_noise = takes_weights = True

    def work_out(self, seen: Seen) -> tuple[Model, dict]:
        offsets, logs = seen.offsets, seen.log_priors("none")
        return linear_head(*discriminant(offsets, seen.origin, offsets, logs), seen), {}

    def left_out(self, components: Components) -> LeftOut:
        return DiscriminantLeftOut(components.merged("class"), None, "none")
