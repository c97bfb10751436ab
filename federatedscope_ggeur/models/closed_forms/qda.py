"""Quadratic discriminant analysis."""

from __future__ import annotations

import torch

from federatedscope_ggeur.models.base import Model
from federatedscope_ggeur.models.closed_forms.base import (
    BELOW,
    ClosedForm,
    Seen,
    register_closed_form,
)
from federatedscope_ggeur.models.closed_forms.choices import (
    priors_key,
)
from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant
from federatedscope_ggeur.models.closed_forms.shrinkage import (
    class_root,
    common_covariance,
)
from federatedscope_ggeur.models.quadratic import QuadraticHead, pack
from federatedscope_ggeur.settings import Key, fraction


@register_closed_form("qda")
class QuadraticDiscriminant(ClosedForm):
    """``-(x-mu_c)^T S_c^-1 (x-mu_c) / 2 - log|S_c| / 2 + log pi_c``.

    ``S_c = (1-g) W_c/(n_c-1) + g S`` with LDA's common covariance S, and ``S_c = S``
    for a class of one sample.

    Parameters
    ----------
    shrinkage : float
        g, 0 to 1.
    priors : {"counts", "none"}
    lda : LinearDiscriminant
        Whose shrinkage S has.
    """

    meaning = (
        "quadratic discriminant: a covariance for each class, shrunk to the common one"
    )
    source = "Friedman 1989"
    SETTINGS = (
        Key(
            "shrinkage",
            0.5,
            "QDA: share of LDA's common covariance in that of a class, 0 to 1.",
            fraction(),
        ),
        priors_key("QDA: as lda.priors."),
    )
    READS = ("lda",)
    NEEDS = "class"
    trainable = False

    shrinkage: float
    priors: str
    lda: LinearDiscriminant

    @classmethod
    def build_model(cls, in_features: int, num_classes: int) -> Model:
        return QuadraticHead(in_features, num_classes)

    def work_out(self, seen: Seen) -> tuple[Model, dict]:
        common, _, report = common_covariance(
            seen.within, int(seen.total), len(seen.classes), self.lda.shrinkage
        )
        model = QuadraticHead(seen.dim, seen.num_classes).requires_grad_(False)
        identity = torch.eye(seen.dim, dtype=torch.float64)
        offsets = seen.log_priors(self.priors)
        for i, c in enumerate(seen.classes):
            root = class_root(seen, i, common, self.shrinkage)
            inverse_root = torch.linalg.solve_triangular(root, identity, upper=False)
            offsets[i] -= root.diagonal().log().sum()
            model.means[c] = seen.means[i].float()
            model.factors[c] = pack(inverse_root).float()
        offsets -= offsets.mean()
        model.offsets[seen.classes] = offsets.float()
        _leave_out_unseen(model, seen.classes)
        report["class_shrinkage"] = float(self.shrinkage)
        report["priors"] = self.priors
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
        model.offsets[c] = model.offsets[first] - BELOW
