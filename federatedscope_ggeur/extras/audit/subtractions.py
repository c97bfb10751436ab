"""A9 and S1 to S4: attacks by clients that subtract their own rows.

S1 to S4 are for a client that owns nearly all rows of a class. Let all clients together
have N rows of a class with mean mu, and client k n of them with mean mu_k. If client k
knows mu, it can compute the mean of the others' rows, ``(N mu - n mu_k) / (N - n)``. If
the others have fewer rows than the threshold, the server must not reveal mu.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from scipy.optimize import least_squares
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant
from federatedscope_ggeur.models.closed_forms.ridge import RidgeRegression
from federatedscope_ggeur.models.closed_forms.shrinkage import common_covariance

from .base import AttackResult, Clock, Report, Transcript, Truth

#: A mean counts as known if its error is less than this share of its distance from the
#: client's own mean.
_CLOSE = 0.1
#: The one-shot heads for which the attacks are written.
_ATTACKED = {
    "S1": object,
    "S2": (LinearDiscriminant, RidgeRegression),
    "S3": LinearDiscriminant,
    "S4": LinearDiscriminant,
}
#: S3 is tried only up to this many unknown numbers.
_MOST_UNKNOWN = 600
F64 = torch.float64


def a9(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """A9, with two clients: each computes the other's counts by subtraction.

    The audit has only one run, so it cannot compare runs with different clients.
    """
    ranks = seen.class_ranks()
    if len(truth.clients) != 2 or not ranks:
        why = "there are more than two clients, or no shapes of less than full rank"
        return Report("A9", "client").nothing(why)
    k, other = sorted(truth.clients)
    report = Report("A9", f"client {k}")
    if other not in seen.uploads:
        return report.nothing("the other sends no statistics")
    right = 0
    for c, rank in ranks.items():
        own = int(seen.uploads[k].counts[c]) if k in seen.uploads else 0
        right += rank + 1 - own == int(seen.uploads[other].counts[c])
    return report.counted("the other's counts", right, len(ranks))


class Owner:
    """What one client knows beside the server's messages.

    Attributes
    ----------
    number : int
    totals, counts : Tensor of shape (C,)
        The numbers of rows over all clients, and of the client itself.
    means : Tensor of shape (C, D), float64
        The class means of the client's own rows; 0 for classes without own rows.
    scatter : Tensor of shape (D, D), float64
        The scatter of the client's own rows about `means`.
    few : list of int
        The classes of which the others have rows, but fewer than the threshold.
    sole : Tensor of int64
        The classes of the head that only this client has.
    filled : int or None
        The class that the client has filled with invented rows, if it lies.
    """

    def __init__(self, seen: Transcript, truth: Truth, number: int):
        self.number, self._seen, self._truth = number, seen, truth
        self.totals = truth.totals if seen.counts is None else seen.counts
        self.counts = truth.counts(number)
        x, y = truth.clients[number]
        self._rows, self._labels = x, y
        sums = torch.zeros(truth.num_classes, x.shape[1], dtype=F64)
        sums.index_add_(0, y, x.double())
        self.means = sums / self.counts.clamp(min=1)[:, None]
        self.filled: int | None = None
        self._claims, self._claimed = 0, 0.0

    @property
    def scatter(self) -> Tensor:
        sums = torch.zeros_like(self.means)
        sums.index_add_(0, self._labels, self._rows.double())
        there = torch.bincount(self._labels, minlength=len(sums)).clamp(min=1)
        off = self._rows.double() - (sums / there[:, None])[self._labels]
        return off.T @ off

    @property
    def few(self) -> list[int]:
        rest, least = self.totals - self.counts, self._seen.role.min_samples
        there = (rest > 0) & (rest < max(least, 2)) & (self.counts > 0)
        return torch.nonzero(there).flatten().tolist()

    @property
    def sole(self) -> Tensor:
        rest, classes = self.totals - self.counts, self._seen.head_classes
        held = torch.tensor([c in classes for c in range(len(rest))])
        return torch.nonzero((rest == 0) & (self.counts > 0) & held).flatten()

    def claim(self, c: int, rows: int, scatter: float) -> None:
        """Count invented rows of class `c` as the client's own.

        They have mean 0 and scatter ``scatter I``. If nearly all rows of the class are
        invented, the client knows the class mean.
        """
        n = int(self.counts[c])
        self._claims += rows
        self._claimed += scatter
        self.means[c] = self.means[c] * n / (n + rows)
        self.counts[c] += rows
        if scatter:
            self.filled = c

    @property
    def within(self) -> Tensor:
        """The client's estimate of the scatter of all rows within classes.

        It assumes that the others' rows are like its own.
        """
        return self.scatter * self._share + self._claimed * self._identity

    @property
    def about_mean(self) -> Tensor:
        """The client's estimate of the scatter of all rows about their mean.

        It assumes that the others' rows are like its own.
        """
        x, total = self._rows.double(), float(self.totals.sum())
        mean = x.sum(dim=0) * self._share / total
        about = x.T @ x * self._share + self._claimed * self._identity
        return about - total * torch.outer(mean, mean)

    @property
    def _identity(self) -> Tensor:
        return torch.eye(self.means.shape[1], dtype=F64)

    @property
    def _share(self) -> float:
        """The number of real rows of all clients, divided by that of this client."""
        return (float(self.totals.sum()) - self._claims) / max(len(self._rows), 1)

    def others_mean(self, c: int, mean: Tensor) -> Tensor:
        """Compute the mean of the others' rows from the mean of all rows."""
        n, own = int(self.totals[c]), int(self.counts[c])
        return (n * mean - own * self.means[c]) / (n - own)

    def is_right(self, c: int, guess: Tensor) -> bool:
        """Whether `guess` [D] is close to the mean of the others' rows of class `c`."""
        rows = [self._truth.rows(j, c) for j in self._truth.clients if j != self.number]
        right = torch.cat(rows).mean(dim=0)
        off = float((guess - right).norm())
        return off < _CLOSE * float((right - self.means[c]).norm())

    def known(self, means: Mapping[int, Tensor]) -> int:
        """Count the classes in `few` for which `means` reveals the others' mean.

        `means` has guesses of class means [D] over all clients.
        """
        guesses = {c: self.others_mean(c, means[c]) for c in self.few if c in means}
        return sum(self.is_right(c, guess) for c, guess in guesses.items())


def s1(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """S1, by every client: use means that the server sent, or a head made of means."""

    return _by_every_client("S1", seen, truth, clock, by_means)


def s2(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """S2, by every client: compute class means from a head and the pooled shape.

    It is ``mu = A V``, with the weights V of the head and the covariance A of the
    shape. Without a shape, the scatter of the client's own rows replaces A.
    """

    return _by_every_client("S2", seen, truth, clock, by_covariance)


def s3(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """S3, by a client that lacks at most one row of each class: use only the head.

    The covariance is estimated from the client's rows and the rows guessed so far.
    """

    def guesses(seen: Transcript, owner: Owner) -> dict[int, Tensor]:
        rest = (owner.totals - owner.counts).clamp(min=0)
        few = int(rest.max()) <= 1 and int(rest.sum()) <= truth.num_classes
        if seen.head is None or not few:
            return {}
        return _rows_that_fit(seen, owner, owner.scatter, clock)

    return _by_every_client("S3", seen, truth, clock, guesses)


def s4(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """S4, by a client that alone holds more classes than dimensions: use only the head.

    ``V_c mu_c' = mu_c V_c'`` holds, up to a part that all classes share.
    """

    def guesses(seen: Transcript, owner: Owner) -> dict[int, Tensor]:
        sole = owner.sole
        if seen.head is None or len(sole) <= seen.head[0].shape[1]:
            return {}
        weight = seen.head[0].double()
        apart, turned = (t[sole[1:]] - t[sole[:1]] for t in (owner.means, weight))

        def from_centre(c: int) -> Tensor:
            """``mu_c`` minus the mean over all classes."""
            return torch.linalg.lstsq(turned, apart @ weight[c]).solution

        centre = owner.means[sole] - torch.stack([from_centre(int(c)) for c in sole])
        centre = centre.mean(dim=0)
        return {c: from_centre(c) + centre for c in seen.head_classes}

    return _by_every_client("S4", seen, truth, clock, guesses)


def by_means(seen: Transcript, owner: Owner) -> dict[int, Tensor]:
    """The class means over all clients that the server sent `owner`, also in a head."""
    means: dict[int, Tensor] = {}
    got = seen.prototypes.get(owner.number)
    if got is not None and got.counts is not None:
        means = dict(zip(got.labels.tolist(), got.prototypes.double()))
    form = seen.form
    if seen.head is not None and form is not None and form.NEEDS == "means":
        means.update(_shifted(seen.head[0].double(), owner, seen))
    return means


def by_covariance(seen: Transcript, owner: Owner) -> dict[int, Tensor]:
    """Compute class means over all clients from a head of LDA or ridge regression.

    The client does not know the head's covariance. It takes the covariance that the
    server sent, or that of its own rows.
    """
    form = seen.form
    if seen.head is None:
        return {}
    weight = seen.head[0].double()
    if isinstance(form, RidgeRegression):
        rows = owner.totals.clamp(min=1)[:, None]
        return _shifted(weight @ _gram_of_own(form, owner) / rows, owner, seen)
    if not isinstance(form, LinearDiscriminant):
        return {}
    common = _common_of_shape(seen, owner)
    if common is None:
        common = _common_of_own(seen, owner)
    return {} if common is None else _shifted(weight @ common, owner, seen)


def _rows_that_fit(
    seen: Transcript, owner: Owner, own: Tensor, clock: Clock
) -> dict[int, Tensor]:
    """Find class means that would give the head that the server sent.

    Each mean is over the client's rows and at most one row of others. `own` is the
    client's scatter within classes.
    """
    assert seen.head is not None, "the server sent no head"
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


def _by_every_client(attack, seen, truth, clock, guesses) -> list[AttackResult]:
    """Make one finding over all clients, for the classes that each nearly owns."""
    report, form = Report(attack, "every client"), seen.form
    if seen.noisy is not None:
        return report.nothing("the server sends only noisy sums: see A11")
    owners = [Owner(seen, truth, number) for number in truth.clients]
    if not any(owner.few for owner in owners):
        return report.nothing("no client owns nearly all rows of a class")
    if attack != "S1" and seen.head is None:
        return report.nothing("the server sends no one-shot head")
    if attack != "S1" and form is not None and form.NEEDS == "means":
        return report.nothing("the head is made only of means, see S1")
    if not isinstance(form, _ATTACKED[attack]):
        return report.untried("there is no such attack on this head")
    right = tried = reached = 0
    for owner in owners:
        if clock.is_over or not owner.few:
            continue
        means = guesses(seen, owner)
        tried += len(owner.few)
        reached += len(means.keys() & set(owner.few))
        right += owner.known(means)
    if tried and not reached:
        why = f"the server sent nothing about {tried} classes that a client nearly owns"
        return report.nothing(why)
    note = f"the attack had a guess for {reached}"
    return report.counted("others' means known", right, tried, note)


def _common(seen: Transcript, within: Tensor, rows: int, classes: int) -> Tensor:
    """The common covariance [D, D] of a head, from a scatter `within` classes."""
    form = seen.form
    assert isinstance(form, LinearDiscriminant), "only LDA has one"
    shrinkage, degrees = form.shrinkage, rows - classes
    if shrinkage is None:
        shrinkage = ledoit_wolf(within / degrees, degrees) if degrees > 1 else 1.0
    return common_covariance(within, rows, classes, shrinkage)[0]


def ledoit_wolf(covariance: Tensor, degrees: float) -> float:
    """Ledoit and Wolf's share of the spherical covariance, for Gaussian data.

    A client guesses by it the shrinkage that clients' rows have chosen.

    This is the Rao-Blackwellised estimator. The general one needs fourth moments, which
    are never sent. `covariance` [D, D] must have `degrees` >= 2 degrees of freedom.

    References
    ----------
    Chen, Wiesel, Eldar, Hero, "Shrinkage algorithms for MMSE covariance estimation",
    2010, Eq. 17.
    """
    n, dim = degrees, len(covariance)
    of_square = float(covariance.square().sum())
    squared = float(covariance.trace()) ** 2
    apart = of_square - squared / dim
    if apart <= 0:
        return 1.0  # it is spherical already
    return min(1.0, ((n - 2) / n * of_square + squared) / ((n + 2) * apart))


def _common_of_shape(seen: Transcript, owner: Owner) -> Tensor | None:
    """The head's common covariance, from the pooled shape that the server sent."""
    geometry = seen.geometry
    if geometry is None or not geometry.pooled or not geometry.shapes:
        return None
    shape = next(iter(geometry.shapes.values()))
    root = shape.eigenvalues.double().sqrt()[:, None] * shape.eigenvectors.T.double()
    root = seen.space.inverse_linear(root)
    rows = int(owner.totals.sum())
    classes = int((owner.totals > 0).sum())
    return _common(seen, rows * root.T @ root, rows, classes)


def _common_of_own(seen: Transcript, owner: Owner) -> Tensor | None:
    """The head's common covariance, estimated from the client's own rows."""
    rows, classes = int(owner.totals.sum()), int((owner.totals > 0).sum())
    try:
        return _common(seen, owner.within, rows, classes)
    except StatisticsError:  # too few rows: the matrix cannot be inverted
        return None


def _gram_of_own(form: RidgeRegression, owner: Owner) -> Tensor:
    """The matrix [D, D] that ridge regression inverts, from the client's own rows."""
    gram = owner.about_mean
    added = form.chosen * float(gram.trace()) / len(gram)
    return gram + added * torch.eye(len(gram), dtype=F64)


def _shifted(centred: Tensor, owner: Owner, seen: Transcript) -> dict[int, Tensor]:
    """Add to the `centred` means their common difference from the class means.

    The client computes it from the class that it has filled with invented rows. Without
    such a class, it takes the classes that only this client has, or else the class of
    which it has the largest share.
    """
    places = owner.sole
    if not len(places):
        share = owner.counts / owner.totals.clamp(min=1)
        places = share.argmax()[None]
    if owner.filled is not None:
        places = torch.tensor([owner.filled])
    shift = (owner.means[places] - centred[places]).mean(dim=0)
    return {c: centred[c] + shift for c in seen.head_classes}
