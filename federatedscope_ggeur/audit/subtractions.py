"""A9, and the four ways in which who owns nearly everything takes its own away.

Of a class that all clients have N rows of, n of them its own, a client knows the mean
of the others once it knows the mean of all: ``(N mu - n mu_k) / (N - n)``. Where they
hold fewer rows than the threshold nobody may know that.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy.optimize import least_squares
from torch import Tensor

from federatedscope_ggeur.audit.base import (
    Clock,
    Finding,
    Transcript,
    Truth,
    nothing,
)
from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant
from federatedscope_ggeur.models.closed_forms.shrinkage import common_covariance

#: A mean is known where it is off by less than this share of its distance from the
#: client's own.
_CLOSE = 0.1
#: S3 solves for no more numbers.
_MOST_UNKNOWN = 600
F64 = torch.float64


def a9(seen: Transcript, truth: Truth, clock: Clock) -> Iterator[Finding]:
    """A9, client: of two clients each has the other's counts by subtraction. What
    leaves or joins between two runs is not in the bytes of one."""
    geometry = seen.geometry
    if len(truth.clients) != 2 or geometry is None or geometry.pooled:
        why = "there are more than two clients, or no shapes of classes"
        yield nothing("A9", "client", "rows", why)
        return
    k, other = sorted(truth.clients)
    right = tried = 0
    for c, shape in geometry.shapes.items():
        if shape.rank < shape.dim and other in seen.uploads:
            tried += 1
            own = int(seen.uploads[k].counts[c]) if k in seen.uploads else 0
            right += shape.rank + 1 - own == int(seen.uploads[other].counts[c])
    yield Finding(
        *("A9", f"client {k}", f"the other's counts, of {tried}", float(right)),
        limit=0.0,
        level="rows",
        passed=not right,
    )


class Owner:
    """What one client knows beside what came down.

    Attributes
    ----------
    number : int
    totals, counts : Tensor of shape (C,)
        Rows of all clients, and its own.
    means : Tensor of shape (C, D), float64
        Its own; 0 where it has none.
    few : list of int
        Classes of which the others have some rows, but fewer than the threshold.
    sole : list of int
        Classes that it alone holds, among those that the head is of.
    """

    def __init__(self, seen: Transcript, truth: Truth, number: int):
        self.number, self._truth = number, truth
        self.totals = truth.totals if seen.counts is None else seen.counts
        self.counts = truth.counts(number)
        x, y = truth.clients[number]
        sums = torch.zeros(truth.num_classes, x.shape[1], dtype=F64)
        sums.index_add_(0, y, x.double())
        self.means = sums / self.counts.clamp(min=1)[:, None]
        rest = self.totals - self.counts
        least = seen.role.min_samples
        there = (rest > 0) & (rest < max(least, 2)) & (self.counts > 0)
        self.few = torch.nonzero(there).flatten().tolist()
        held = torch.tensor([c in seen.head_classes for c in range(len(rest))])
        self.sole = torch.nonzero((rest == 0) & (self.counts > 0) & held).flatten()

    def others_mean(self, c: int, mean: Tensor) -> Tensor:
        """By subtraction from the mean of all."""
        n, own = int(self.totals[c]), int(self.counts[c])
        return (n * mean - own * self.means[c]) / (n - own)

    def is_right(self, c: int, guess: Tensor) -> bool:
        """Whether it is the others' mean."""
        rows = [self._truth.rows(j, c) for j in self._truth.clients if j != self.number]
        right = torch.cat(rows).mean(dim=0)
        off = float((guess - right).norm())
        return off < _CLOSE * float((right - self.means[c]).norm())


def s1(seen: Transcript, truth: Truth, clock: Clock) -> Iterator[Finding]:
    """S1, every client: from means that went down, or a head that is nothing else."""

    def guesses(owner: Owner) -> dict[int, Tensor]:
        found: dict[int, Tensor] = {}
        got = seen.prototypes.get(owner.number)
        if got is not None and got.counts is not None:
            found = dict(zip(got.labels.tolist(), got.prototypes.double()))
        form = seen.form
        if seen.head is not None and form is not None and form.NEEDS == "means":
            shift = _shift(owner, seen.head[0].double())
            if shift is not None:
                means = seen.head[0].double() + shift
                found.update({c: means[c] for c in seen.head_classes})
        return found

    yield from _by_every_client("S1", seen, truth, clock, guesses)


def s2(seen: Transcript, truth: Truth, clock: Clock) -> Iterator[Finding]:
    """S2, every client: ``mu = A V`` from a head V and the pooled shape; without a
    shape, by the scatter of its own rows in its place."""

    def guesses(owner: Owner) -> dict[int, Tensor]:
        if seen.head is None or not _is_lda(seen):
            return {}
        common = _common_of_shape(seen, owner)
        if common is None:
            common = _common_of_own(seen, truth, owner)
        return {} if common is None else _means_by(common, owner, seen)

    yield from _by_every_client("S2", seen, truth, clock, guesses)


def s3(seen: Transcript, truth: Truth, clock: Clock) -> Iterator[Finding]:
    """S3, every client that owns all rows but one a class at most: from the head alone,
    by a covariance that the rows guessed so far would give."""

    def guesses(owner: Owner) -> dict[int, Tensor]:
        rest = (owner.totals - owner.counts).clamp(min=0)
        few = int(rest.max()) <= 1 and int(rest.sum()) <= truth.num_classes
        if seen.head is None or not few or not _is_lda(seen):
            return {}
        x, y = truth.clients[owner.number]
        own = torch.zeros(x.shape[1], x.shape[1], dtype=F64)
        for c in y.unique().tolist():
            off = x[y == c].double() - owner.means[c]
            own += off.T @ off
        return _rows_that_fit(seen, owner, own, clock)

    yield from _by_every_client("S3", seen, truth, clock, guesses)


def s4(seen: Transcript, truth: Truth, clock: Clock) -> Iterator[Finding]:
    """S4, every client that alone holds more classes than there are dimensions: from
    the head alone, since ``V_c mu_c' = mu_c V_c'`` up to what all classes share."""

    def guesses(owner: Owner) -> dict[int, Tensor]:
        sole = owner.sole
        if seen.head is None or len(sole) <= seen.head[0].shape[1] or not _is_lda(seen):
            return {}
        weight = seen.head[0].double()
        apart, turned = (t[sole[1:]] - t[sole[:1]] for t in (owner.means, weight))

        def from_centre(c: int) -> Tensor:
            """``mu_c`` less the mean over all classes."""
            return torch.linalg.lstsq(turned, apart @ weight[c]).solution

        centre = owner.means[sole] - torch.stack([from_centre(int(c)) for c in sole])
        centre = centre.mean(dim=0)
        return {c: from_centre(c) + centre for c in seen.head_classes}

    yield from _by_every_client("S4", seen, truth, clock, guesses)


def _rows_that_fit(
    seen: Transcript, owner: Owner, own: Tensor, clock: Clock
) -> dict[int, Tensor]:
    """Class means, of those that one row of others is missing in, with which the head
    would be the one that came down; `own` is the client's scatter within classes."""
    assert seen.head is not None, "no head went down"
    weight, classes = seen.head[0].double(), list(seen.head_classes)
    few = [c for c in owner.few if c in classes]
    dim, rows = own.shape[0], int(owner.totals.sum())
    if not few or len(few) * dim > _MOST_UNKNOWN:
        return {}
    n = owner.counts[few].double()

    def means(flat: np.ndarray) -> Tensor:
        held = owner.means.clone()
        others = torch.from_numpy(flat).reshape(len(few), dim)
        held[few] = (n[:, None] * owner.means[few] + others) / (n[:, None] + 1)
        return held

    def misfit(flat: np.ndarray) -> np.ndarray:
        if clock.is_over:
            return np.zeros(len(classes) * dim)
        others = torch.from_numpy(flat).reshape(len(few), dim)
        moved = others - owner.means[few]
        within = own + (moved * (n / (n + 1))[:, None]).T @ moved
        centred = (weight @ _common(seen, within, rows, len(classes)))[classes]
        off = centred - means(flat)[classes]
        return (off - off.mean(dim=0)).flatten().numpy()

    start = owner.means[few].flatten().numpy()
    solved = least_squares(misfit, start, method="lm", xtol=1e-12, ftol=1e-12)
    held = means(solved.x)
    return {c: held[c] for c in few}


def _by_every_client(attack, seen, truth, clock, guesses) -> Iterator[Finding]:
    """One finding over all clients and the classes that each of them nearly owns."""
    right = tried = reached = 0
    for number in truth.clients:
        owner = Owner(seen, truth, number)
        if clock.is_over or not owner.few:
            continue
        found = guesses(owner)
        for c in owner.few:
            tried += 1
            if c in found:
                reached += 1
                right += owner.is_right(c, owner.others_mean(c, found[c]))
    if not tried:
        why = "no client owns nearly all rows of a class"
        yield nothing(attack, "every client", "rows", why)
        return
    yield Finding(
        *(attack, "every client", f"others' means known, of {tried}", float(right)),
        limit=0.0,
        level="rows",
        passed=not right,
        note=f"{reached} could be guessed at",
    )


def _shift(owner: Owner, centred: Tensor) -> Tensor | None:
    """What all class means less `centred` share, by the classes that it alone holds
    or, else, the one that it holds most of."""
    places = owner.sole
    if not len(places):
        share = owner.counts / owner.totals.clamp(min=1)
        if not float(share.max()) > 0:
            return None
        places = share.argmax()[None]
    return (owner.means[places] - centred[places]).mean(dim=0)


def _is_lda(seen: Transcript) -> bool:
    return isinstance(seen.form, LinearDiscriminant)


def _common(seen: Transcript, within: Tensor, rows: int, classes: int) -> Tensor:
    """The common covariance of the head: shape [D, D]."""
    form = seen.form
    assert isinstance(form, LinearDiscriminant), "only LDA has one"
    return common_covariance(within, rows, classes, form.shrinkage)[0]


def _common_of_shape(seen: Transcript, owner: Owner) -> Tensor | None:
    """The same from the pooled shape that came down."""
    geometry = seen.geometry
    if geometry is None or not geometry.pooled or not geometry.shapes:
        return None
    shape = next(iter(geometry.shapes.values()))
    root = shape.eigenvalues.double().sqrt()[:, None] * shape.eigenvectors.T.double()
    root = seen.space.inverse_linear(root)
    rows = int(owner.totals.sum())
    classes = int((owner.totals > 0).sum())
    return _common(seen, rows * root.T @ root, rows, classes)


def _common_of_own(seen: Transcript, truth: Truth, owner: Owner) -> Tensor | None:
    """The same from its own rows, as if all others' were like them."""
    x, y = truth.clients[owner.number]
    rows, classes = len(y), int((owner.counts > 0).sum())
    centred = x.double() - owner.means[y]
    try:
        return _common(seen, centred.T @ centred, rows, classes)
    except StatisticsError:  # they are too few to invert
        return None


def _means_by(common: Tensor, owner: Owner, seen: Transcript) -> dict[int, Tensor]:
    assert seen.head is not None, "no head went down"
    centred = seen.head[0].double() @ common
    shift = _shift(owner, centred)
    if shift is None:
        return {}
    return {c: centred[c] + shift for c in seen.head_classes}
