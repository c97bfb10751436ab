"""Mixture discriminant analysis. The components are domains or clients."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from federatedscope_ggeur.settings import Key, one_of

from ..base import Model
from ..heads import MixtureHead
from .base import (
    BELOW,
    SHRINKAGES,
    UNTUNED_SHRINKAGE,
    ClosedForm,
    Seen,
    priors_key,
    register_closed_form,
    shrinkage_key,
    standardize_key,
)
from .components import Components
from .lda import discriminant, discriminant_left_out
from .left_out import LeftOut, sum_by_class
from .shrinkage import common_covariance


@register_closed_form("mixture")
class MixtureDiscriminant(ClosedForm):
    """Mixture discriminant analysis: each class is a mixture of components.

    The score of class c is ``log sum_{j of c} pi_j exp(x^T S^-1 mu_j - mu_j^T S^-1 mu_j
    / 2)``.

    A component j holds the rows of one class and one domain, or of one class and one
    client. S is the common covariance of the J components: the scatter about their own
    means, divided by N - J, and shrunk as in LDA. So the result depends on which client
    has which rows. The mixture helps if domains, or clients, differ in more than their
    shares of classes.

    Parameters
    ----------
    components : {"domain", "client"}
    shrinkage : float, optional
        Share of the spherical covariance in S, 0 to 1. If None, leave-one-out chooses
        the share; if that is impossible, it is 0.3.
    priors : {"counts", "none"}
        Whether ``pi_j`` is ``n_j / N``, or ``n_j / n_c``.
    standardize : bool
        Whether dimensions are divided by their standard deviations first.

    References
    ----------
    Hastie, Tibshirani, "Discriminant analysis by Gaussian mixtures", 1996.
    """

    meaning = "mixture discriminant: a mean for each class and domain, or client"
    source = "Hastie, Tibshirani 1996"
    SETTINGS = (
        Key(
            "components",
            "domain",
            "Mixture discriminant: a mean for each class and domain, or for each "
            "class and client.",
            one_of("domain", "client"),
        ),
        shrinkage_key("Mixture discriminant: "),
        priors_key("Mixture discriminant: the same as lda.priors."),
        standardize_key("Mixture discriminant: "),
    )
    trainable = False
    takes_prior = True
    partition_free = False
    TUNED, UNTUNED = "shrinkage", UNTUNED_SHRINKAGE
    GRID: ClassVar[tuple[float, ...]] = SHRINKAGES

    components: str
    shrinkage: float | None
    priors: str

    @property
    def grain(self) -> str:  # type: ignore[override]  # the setting decides
        return self.components

    @classmethod
    def build_model(cls, in_features: int, num_classes: int) -> Model:
        return MixtureHead(in_features, num_classes)

    def left_out(self, components: Components) -> LeftOut:
        return discriminant_left_out(self, components.merged(self.grain), self.priors)

    def work_out(self, seen: Seen) -> tuple[Model, dict]:
        parts = seen.components.merged(self.grain)
        _, root, report = common_covariance(
            parts.within(), parts.total, len(parts.counts), self.chosen, self.name
        )
        means, labels, weights = parts.means, parts.labels, parts.weights
        if self.known is not None and self.known.prior:
            means, weights, labels, moved = self.known.moved_components(parts)
            report = {**report, **moved}
        logs = log_shares(weights, labels, parts.num_classes, self.priors)
        offsets = means - parts.origin
        directions = torch.cholesky_solve(offsets.T, root).T
        weight, bias = discriminant(offsets, parts.origin, directions, logs)
        # The components' scores of any x add up to zero.
        bias = bias - bias.mean()
        model = mixture_head(weight, bias, labels, parts.num_classes)
        return model, {
            **report,
            "components": self.components,
            "component_count": len(parts.counts),
            "priors": self.priors,
        }


def log_shares(weights: Tensor, labels: Tensor, classes: int, priors: str) -> Tensor:
    """Log priors [J] of components.

    They are the shares in the sum of all `weights`, or, with "none", in the sum of
    their own class.
    """
    logs = (weights / weights.sum()).log()
    if priors == "none":
        logs = logs - sum_by_class(logs[None], labels, classes)[0, labels]
    return logs


def mixture_head(
    weight: Tensor,
    bias: Tensor,
    labels: Tensor,
    num_classes: int,
    centre: Tensor | None = None,
    precisions: Tensor | None = None,
) -> MixtureHead:
    """The head with weights [J, D] and biases [J] of components.

    `labels` [J] are the classes of the components. `centre` and `precisions` are as in
    `MixtureHead.of_components`. At any row the largest score must be zero or more: then
    a class without components never has it.
    """
    unseen = sorted(set(range(num_classes)) - set(labels.tolist()))
    return MixtureHead.of_components(
        torch.cat([weight, weight.new_zeros(len(unseen), weight.shape[1])]),
        torch.cat([bias, bias.new_full((len(unseen),), -BELOW)]),
        torch.cat([labels, torch.tensor(unseen, dtype=torch.int64)]),
        num_classes,
        centre,
        precisions,
    )
