"""Text features as a prior of class means.

Let m be the mean of all rows, n_c the number of rows of class c, and w_c its text
features. The prior guess of a class mean is ``p_c = m + a d_c`` with ``d_c = w_c - mean
w``. The number a bridges text and images. A least-squares fit to the merged means gives
::

    a = sum_c n_c <mu_c - m, d_c> / sum_c n_c |d_c|^2

If this is negative, a is 0, and text has no influence. Means become ``(n_c mu_c + kappa
p_c) / (n_c + kappa)``. A class without rows gets p_c, unless a is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from federatedscope_ggeur.models.closed_forms.base import Report, Seen
from federatedscope_ggeur.models.closed_forms.components import Components, ScoredRows
from federatedscope_ggeur.models.closed_forms.left_out import (
    LEAST,
    DiscriminantLeftOut,
    sum_by_class,
)

if TYPE_CHECKING:
    from .classes import ClassTexts


def bridge(parts: Components, offsets: Tensor) -> float:
    """The factor a that fits text offsets to the offsets of means, by least squares.

    `offsets` [C, D] are the text offsets d_c of the classes. The result is not below 0.
    """
    own = offsets[parts.labels]
    products = ((parts.means - parts.origin) * own).sum(dim=1)
    squares = float(parts.weights @ own.square().sum(dim=1))
    return max(0.0, float(parts.weights @ products) / squares) if squares > 0 else 0.0


def with_prior(
    parts: Components, text: ClassTexts
) -> tuple[Tensor, Tensor, Tensor, Report]:
    """Components whose means text has moved, and one more for each class without rows.

    Returns
    -------
    means : Tensor of shape (J, D), float64
    weights : Tensor of shape (J,), float64
        ``n_j + kappa``, the weights for priors.
    labels : Tensor of shape (J,), int64
    report : dict
        a, in plain values.
    """
    offsets, kappa = text.offsets, text.prior
    a = bridge(parts, offsets)
    unseen = _unseen(parts) if a else []
    labels = torch.cat([parts.labels, torch.tensor(unseen, dtype=torch.int64)])
    counts = torch.cat([parts.weights, parts.weights.new_zeros(len(unseen))])
    sums = parts.weights[:, None] * parts.means
    sums = torch.cat([sums, sums.new_zeros(len(unseen), parts.dim)])
    guessed = parts.origin + a * offsets[labels]
    weights = counts + kappa
    means = (sums + kappa * guessed) / weights[:, None]
    return means, weights, labels, {"text_bridge": a}


def _unseen(parts: Components) -> list[int]:
    return sorted(set(range(parts.num_classes)) - set(parts.classes))


def moved_by_text(seen: Seen, text: ClassTexts) -> tuple[Seen, Report]:
    """The statistics with all classes, means moved by text, and counts ``n_c + kappa``.

    The origin stays the same. The second result is a report in plain values.
    """
    moved, weights, labels, report = with_prior(seen.components_of_classes, text)
    order = labels.argsort()
    counts, means = weights[order], moved[order]
    after = replace(
        seen,
        classes=labels[order].tolist(),
        counts=counts,
        total=float(counts.sum()),
        means=means,
        offsets=means - seen.origin,
    )
    return after, report


class PriorLeftOut:
    """Scores rows by LDA or the mixture with a text prior, leaving out each row in
    turn.

    Parameters
    ----------
    parts : Components
        One component for each class (LDA), or several, with their scatter.
    shrinkages : sequence of float
        As for `DiscriminantLeftOut`. The covariances are the same.
    priors : {"counts", "none"}
    text : ClassTexts

    Notes
    -----
    A row x of component j changes m, a and mu_j. Through a it changes every mean. So
    the means are computed anew for each row, from sums without the row's own part.
    """

    def __init__(
        self,
        parts: Components,
        shrinkages: Sequence[float],
        priors: str,
        text: ClassTexts,
    ):
        self._parts, self._shrinkages, self._priors = parts, shrinkages, priors
        self._kappa = text.prior
        self._plain = DiscriminantLeftOut(parts, shrinkages, priors)
        basis = self._plain.basis
        none = torch.tensor(_unseen(parts), dtype=torch.int64)
        self._labels = torch.cat([parts.labels, none])
        self._counts = torch.cat([parts.weights, parts.weights.new_zeros(len(none))])
        means = self._plain.means
        self._means = torch.cat([means, means.new_zeros(len(none), parts.dim)])
        self._offsets = text.offsets[self._labels] @ basis
        # Relative to the mean of all rows, so the weighted sum of means is zero.
        self._lengths = self._offsets.square().sum(dim=1)
        self._products = (self._means * self._offsets).sum(dim=1)

    def __call__(self, rows: ScoredRows) -> list[Tensor]:
        parts, left = self._parts, self._plain.left(rows)
        x, z, at, taken = (
            left.x,
            left.z,
            left.own.clamp(min=0),
            (left.own >= 0).double(),
        )
        counts = self._counts.repeat(len(x), 1)
        counts[torch.arange(len(x)), at] -= taken
        left_rows = (parts.total - taken).clamp(min=1)
        centre = -taken[:, None] * x / left_rows[:, None]
        a = self._bridge(x, at, taken, counts, centre)
        logs = self._log_priors(counts, a)

        def scores(g: float) -> Tensor:
            inverse, b = self._plain.covariance(g, left)
            more = b / (1 - b * (z * inverse * z).sum(dim=1)).clamp(min=LEAST)
            squares = torch.empty_like(counts)
            for j in range(len(self._labels)):
                rest = x - self._moved(j, x, at, taken, counts, centre, a)
                along = (rest * inverse * z).sum(dim=1)
                plain = (rest * inverse * rest).sum(dim=1)
                squares[:, j] = plain + more * along.square()
            return sum_by_class(logs - squares / 2, self._labels, parts.num_classes)

        return [scores(g) for g in self._shrinkages]

    def _bridge(self, x, at, taken, counts, centre) -> Tensor:
        """The number a without each row: Tensor of shape (n,)."""
        own = self._offsets[at]
        products = self._counts @ self._products - taken * (x * own).sum(dim=1)
        sums = self._counts @ self._offsets - taken[:, None] * own
        squares = counts @ self._lengths
        above = products - (centre * sums).sum(dim=1)
        a = torch.where(squares > 0, above / squares.clamp(min=LEAST), 0 * squares)
        return a.clamp(min=0)

    def _moved(self, j, x, at, taken, counts, centre, a) -> Tensor:
        """The moved mean of component j without each row: Tensor of shape (n, D)."""
        total = self._counts[j] * self._means[j] - ((at == j) * taken)[:, None] * x
        guessed = centre + a[:, None] * self._offsets[j]
        return (total + self._kappa * guessed) / (counts[:, j] + self._kappa)[:, None]

    def _log_priors(self, counts: Tensor, a: Tensor) -> Tensor:
        """The log prior of each component without the row.

        It is -inf if the component has neither rows nor a guess from text.
        """
        weights = counts + self._kappa
        rows = counts.new_zeros(len(counts), self._parts.num_classes)
        rows.index_add_(1, self._labels, counts)
        guessed = (rows[:, self._labels] == 0) & (a > 0)[:, None]
        weights = torch.where((counts > 0) | guessed, weights, 0 * weights)
        logs = weights.log() - weights.sum(dim=1, keepdim=True).log()
        if self._priors == "none":
            classes = sum_by_class(logs, self._labels, self._parts.num_classes)
            own = classes[:, self._labels]
            logs = torch.where(weights > 0, logs - own, logs)
        return logs
