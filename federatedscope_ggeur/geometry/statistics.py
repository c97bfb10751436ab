"""Counts, means and scatters of classes, and their exact merge.

`Statistics` obeys one law. Adding two objects gives the statistics of the two data sets
together. Subtracting gives the statistics of the rows that are left.

Count, mean and spread of rows, over all classes together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError

from .scatter import Means, Scatter, moments

#: The largest allowed entry of an embedding or a mean, far below the limit of float32.
#: So squares and scatters stay finite, and in float64 squared scatters do, too.
LARGEST_EMBEDDING = 1e15


#: What statistics may have beside counts and means, from the most to the least.
CONTENTS = {
    "class": "a covariance for each class",
    "pooled": "one covariance for all classes",
    "means": "no covariance",
}
#: The key of a scatter that is summed over classes.
ALL = -1


class MissingScatterError(StatisticsError):
    """A scatter was asked for that the statistics do not have."""


class Statistics:
    r"""Counts and means of `C` classes of `D`-dimensional embeddings, and scatters.

    Objects are immutable. All sums are float64, and centred.

    Parameters
    ----------
    located : Means
    scatters : mapping from class to Scatter
        A single one has the key `ALL`.
    content : {"class", "pooled", "means"}

    Attributes
    ----------
    content : {"class", "pooled", "means"}
        The scatters: one for each class, one summed over classes, or none. The less
        there is, the less travels: LDA and ridge regression need one scatter, and
        nearest class means need none.
    counts : Tensor of shape (C,), int64
        Samples of each class.
    weights : Tensor of shape (C,), float64
        The sums of the samples' weights by class; the counts if all weights are 1. With
        weights, n and N below are these sums.
    means : Tensor of shape (C, D), float64
        Class means. Zero for a class without samples.
    classes : list of int
        Classes with at least one sample, ascending.

    Notes
    -----
    ``a + b`` is Eq. 4 of the paper (the parallel-axis theorem)

    $$\Sigma = \frac{1}{N} \Big[ \sum_k n_k \Sigma_k
    + \sum_k n_k (\mu_k - \mu)(\mu_k - \mu)^T \Big]$$

    applied to two parts at a time, on the scatter ``n Sigma`` (Chan et al., 1979), or
    summed over classes on ``W = sum_c n_c Sigma_c``. A mean is kept as an unevaluated
    sum of two float64 numbers. So differences of means stay exact even if the data lie
    far from the origin.

    References
    ----------
    Ma et al., CVPR 2025, Eq. 4; Chan, Golub, LeVeque, "Updating formulae and a pairwise
    algorithm for computing sample variances", 1979.
    """

    def __init__(
        self, located: Means, scatters: Mapping[int, Scatter], content: str = "class"
    ):
        self.located, self.content = located, content
        self._scatters = dict(scatters)

    @property
    def counts(self) -> Tensor:
        return self.located.counts

    @property
    def weights(self) -> Tensor:
        return self.located.weights

    @property
    def is_weighted(self) -> bool:
        """Whether samples have weights other than 1."""
        return self.located.sums is not None

    @property
    def means(self) -> Tensor:
        return self.located.high

    @property
    def num_classes(self) -> int:
        return self.means.shape[0]

    @property
    def dim(self) -> int:
        return self.means.shape[1]

    @property
    def classes(self) -> list[int]:
        return torch.nonzero(self.counts).flatten().tolist()

    @property
    def absent(self) -> tuple[int, ...]:
        """The classes without rows."""
        return tuple(torch.nonzero(self.counts == 0).flatten().tolist())

    @classmethod
    def empty(cls, num_classes: int, dim: int, content: str = "class") -> Statistics:
        """The statistics of no rows at all. Adding them changes nothing."""
        zeros = torch.zeros(num_classes, dim)
        return cls(Means.rounded(torch.zeros(num_classes), zeros), {}).to(content)

    @classmethod
    def from_embeddings(
        cls,
        features: Tensor,
        labels: Tensor,
        num_classes: int,
        weights: Tensor | None = None,
    ) -> Statistics:
        """Make the statistics of embeddings with labels: a scatter for each class.

        Parameters
        ----------
        features : Tensor of shape (n, D), floating point
        labels : Tensor of shape (n,), integer, in ``0..num_classes-1``
        num_classes : int
        weights : Tensor of shape (n,), float64, positive, optional
            What each row counts for in means and scatters.

        Raises
        ------
        StatisticsError
            Shapes do not fit, values are NaN or infinite, or labels are out of range.
        """
        features, labels = torch.as_tensor(features), torch.as_tensor(labels)
        check_embeddings(features, labels, num_classes)
        result = cls.empty(num_classes, features.shape[1])
        sums = None if weights is None else torch.zeros(num_classes).double()
        for c in labels.unique().tolist():
            members = labels == c
            rows = features[members].to(torch.float64)
            own = None if weights is None else weights[members]
            high, low, result._scatters[c] = moments(rows, own)
            result.located.counts[c] = len(rows)
            result.located.high[c], result.located.low[c] = high, low
            if sums is not None and own is not None:
                sums[c] = own.sum()
        located = replace(result.located, sums=sums)
        return cls(located, result._scatters)

    @classmethod
    def from_moments(
        cls,
        counts: Tensor,
        means: Tensor,
        factors: Mapping[int, Tensor] | None = None,
        covariances: Mapping[int, Tensor] | None = None,
        weights: Tensor | None = None,
    ) -> Statistics:
        """Make statistics with a scatter for each class, e.g. from a message.

        Parameters
        ----------
        counts : Tensor of shape (C,)
        means : Tensor of shape (C, D)
        factors : mapping from class to Tensor of shape (r, D)
            ``F`` with ``F^T F = n Sigma``.
        covariances : mapping from class to Tensor of shape (D, D)
            ``Sigma`` (divided by n) of each class that is not in `factors`.
        weights : Tensor of shape (C,), float64, optional
            The sums of the samples' weights, if they have weights.
        """
        located = Means.rounded(counts, means, weights)
        scatters = {
            c: Scatter.from_factor(factor.to(torch.float64))
            for c, factor in (factors or {}).items()
        }
        for c, covariance in (covariances or {}).items():
            scatters[c] = Scatter.from_dense(
                covariance.to(torch.float64) * float(located.weights[c])
            )
        statistics = cls(located, scatters)
        unlike = scatters.keys() ^ set(statistics.classes)
        if unlike:
            raise StatisticsError(
                f"classes {sorted(unlike)} have samples without a covariance, or a "
                f"covariance without samples"
            )
        return statistics

    @classmethod
    def of_pooled(
        cls,
        counts: Tensor,
        means: Tensor,
        factor: Tensor | None = None,
        scatter: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Statistics:
        """Make statistics with one scatter ``W = sum_c n_c Sigma_c``.

        Parameters
        ----------
        counts : Tensor of shape (C,)
        means : Tensor of shape (C, D)
        factor : Tensor of shape (r, D), optional
            ``F`` with ``F^T F = W``.
        scatter : Tensor of shape (D, D), optional
            ``W`` itself. Give either `factor` or `scatter`.
        weights : as for `from_moments`
        """
        if scatter is not None:
            held = Scatter.from_dense(scatter.to(torch.float64))
        else:
            assert factor is not None
            held = Scatter.from_factor(factor.to(torch.float64))
        return cls(Means.rounded(counts, means, weights), {ALL: held}, "pooled")

    @classmethod
    def of_means(
        cls, counts: Tensor, means: Tensor, weights: Tensor | None = None
    ) -> Statistics:
        """Make statistics without scatters, from counts [C] and means [C, D]."""
        return cls(Means.rounded(counts, means, weights), {}, "means")

    def to(self, content: str) -> Statistics:
        """The part of these statistics that `content` names.

        Scatters are summed over classes, or left out.

        Raises
        ------
        MissingScatterError
            There is less in these statistics.
        """
        if content == self.content:
            return self
        if content == "means":
            return Statistics(self.located, {}, content)
        if content == "class" or self.content == "means":
            raise MissingScatterError(
                f"{CONTENTS[content]} is needed, but the statistics have "
                f"{CONTENTS[self.content]}"
            )
        total = Scatter.zero(self.dim)
        no_rows = torch.zeros(0, self.dim, dtype=torch.float64)
        for c in self.classes:
            rows = self.stacked_rows(c)
            if rows is None:
                part = Scatter.from_dense(self.scatter(c))
            else:
                part = Scatter.from_factor(rows)
            total = total.plus(part, no_rows)
        return Statistics(self.located, {ALL: total}, content)

    # A scatter is that of class c, or without c the one summed over classes.

    def scatter(self, c: int | None = None) -> Tensor:
        """The scatter ``n Sigma`` of class `c`, or W: Tensor of shape (D, D),
        float64."""
        return self._scatter_of(c).matrix()

    def covariance(self, c: int) -> Tensor:
        """The covariance ``Sigma`` of class `c`, divided by n: Tensor of shape (D, D),
        float64.

        Raises
        ------
        StatisticsError
            The class has no samples.
        """
        return self.scatter(c) / float(self.weights[c])

    def factor(self, c: int | None = None) -> Tensor:
        """The thin factor ``F`` of shape (rank, D) with ``F^T F = n Sigma``, or W.

        F is a function of this matrix alone; see `thin_factor`.
        """
        return self._scatter_of(c).factor()

    def stacked_rows(self, c: int | None = None) -> Tensor | None:
        """Rows ``R`` [r, D] with ``R^T R = n Sigma``, or W; None for a dense scatter.

        R is not canonical. Use it for computations on the spot, and never send it.
        """
        return self._scatter_of(c).rows()

    def factor_is_smaller(self, c: int | None = None) -> bool:
        """Whether the thin factor has fewer numbers than the upper triangle."""
        return self._scatter_of(c).factor_is_smaller

    def trace_of(self, c: int) -> float:
        """The trace ``n tr(Sigma)`` of the scatter of class `c`."""
        return self._scatter_of(c).trace()

    def trace(self) -> float:
        """The trace of all scatters together; 0 if there are none."""
        return sum((self._scatters[c].trace() for c in sorted(self._scatters)), 0.0)

    def diagonal(self) -> Tensor:
        """The diagonal of the sum of all scatters [D]; 0 if there are none."""
        none = torch.zeros(self.dim, dtype=torch.float64)
        held = (self._scatters[c].diagonal() for c in sorted(self._scatters))
        return sum(held, none)

    def mapped(self, centre: Tensor, linear: Callable[[Tensor], Tensor]) -> Statistics:
        """The statistics of the rows ``T (x - centre)``.

        Parameters
        ----------
        centre : Tensor of shape (D,), float64
        linear : callable (Tensor of shape (r, D)) -> Tensor of shape (r, D)
            Maps each row r to ``T r``.
        """
        scatters = {c: held.mapped(linear) for c, held in self._scatters.items()}
        located = self.located.mapped(centre, linear)
        return Statistics(located, scatters, self.content)

    def with_means(self, means: Tensor) -> Statistics:
        """The same statistics with other `means` [C, D]; the scatters stay."""
        located = Means.rounded(self.counts, means, self.located.sums)
        return Statistics(located, self._scatters, self.content)

    def restrict(self, classes: Iterable[int]) -> Statistics:
        """The same statistics with the rows of `classes` only.

        Raises
        ------
        StatisticsError
            There is no scatter for each class.
        """
        scatters = self.to("class")._scatters
        kept = set(classes) & set(self.classes)
        mask = torch.zeros(self.num_classes, dtype=torch.bool)
        mask[sorted(kept)] = True
        column, held = mask[:, None], self.located
        sums = None if held.sums is None else held.sums * mask
        located = Means(held.counts * mask, held.high * column, held.low * column, sums)
        return Statistics(located, {c: scatters[c] for c in kept})

    def __add__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        self._require_alike(other)
        means, between = self.located.plus(other.located)
        scatters = {**self._scatters, **other._scatters}
        for c in self._scatters.keys() & other._scatters.keys():
            apart = between if c == ALL else between[c]
            scatters[c] = self._scatters[c].plus(other._scatters[c], apart)
        return Statistics(means, scatters, self.content)

    def __radd__(self, other):
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        self._require_alike(other)
        means, between = self.located.minus(other.located)
        if not other.counts.any():
            return self
        scatters = dict(self._scatters)
        for c in other._scatters:
            # If no class has two samples, the scatter is zero, whatever rounding gives.
            most = int(means.counts.max() if c == ALL else means.counts[c])
            apart = between if c == ALL else between[c]
            if most > 1:
                scatters[c] = self._scatters[c].minus(other._scatters[c], apart)
            elif most == 1 or c == ALL:
                scatters[c] = Scatter.zero(self.dim)
            else:
                del scatters[c]
        return Statistics(means, scatters, self.content)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self.classes)} of {self.num_classes} classes, "
            f"{int(self.counts.sum())} samples, dim {self.dim}, "
            f"{CONTENTS[self.content]})"
        )

    def _require_alike(self, other: Statistics) -> None:
        if self.content != other.content:
            raise StatisticsError(
                f"statistics with {CONTENTS[self.content]} and those with "
                f"{CONTENTS[other.content]} cannot be combined"
            )

    def _scatter_of(self, c: int | None) -> Scatter:
        if c is None:
            return self.to("pooled")._scatters[ALL]
        held = self.to("class")._scatters
        if not 0 <= c < self.num_classes:
            raise StatisticsError(
                f"class {c} is out of range: there are {self.num_classes} classes"
            )
        if self.counts[c] == 0:
            raise StatisticsError(
                f"class {c} has no samples, so it has no covariance; "
                f"'.classes' lists those that do"
            )
        return held[c]


#: The name that users know: statistics with a scatter for each class.
ClassStatistics = Statistics


def check_embeddings(features: Tensor, labels: Tensor, num_classes: int) -> None:
    """Refuse rows [n, D] and labels [n] if they cannot give statistics.

    Raises
    ------
    StatisticsError
        Shapes do not fit, values are NaN or infinite, or labels are out of range.
    """
    is_matrix = features.ndim == 2 and features.shape[1] > 0
    if not is_matrix or not features.is_floating_point():
        raise StatisticsError(
            f"features must be a floating-point array of shape (n, D), D > 0; got "
            f"{features.dtype} of shape {tuple(features.shape)}"
        )
    if labels.ndim != 1 or labels.is_floating_point():
        raise StatisticsError(
            f"labels must be an integer array of shape (n,), got {labels.dtype} of "
            f"shape {tuple(labels.shape)}"
        )
    if len(features) != len(labels):
        raise StatisticsError(
            f"{len(features)} rows of features have {len(labels)} labels; give "
            "one label for each row"
        )
    bad = torch.nonzero(~torch.isfinite(features).all(dim=1)).flatten()
    if len(bad):
        raise StatisticsError(f"features hold NaN or infinity, first in row {bad[0]}")
    bad = torch.nonzero((labels < 0) | (labels >= num_classes)).flatten()
    if len(bad):
        raise StatisticsError(
            f"label {int(labels[bad[0]])} in row {bad[0]} is out of range "
            f"0..{num_classes - 1}"
        )


#: A deviation below this share of the mean is rounding: float64 resolves 1e-16.
_OF_MEAN = 1e-10
#: So is one below this share of the widest deviation of a dimension. A thin factor
#: spreads the rounding of wide dimensions over all others: a feature that is 0 in all
#: rows seems to vary by some 1e-15 of them. Units may truly differ by 12 orders.
_OF_WIDEST = 1e-13


def varying(variances: Tensor, means: Tensor) -> Tensor:
    """Which dimensions vary by more than rounding.

    Parameters
    ----------
    variances, means : Tensor of shape (D,), float64

    Returns
    -------
    Tensor of shape (D,), bool
    """
    of_mean, of_widest = (_OF_MEAN * means).square(), _OF_WIDEST**2 * variances.max()
    return variances > torch.maximum(of_mean, of_widest)


@dataclass(frozen=True)
class Totals:
    """Count, mean and spread of rows, without their classes.

    The totals reveal as much as n, sum x, and sum x^2 of each dimension. ``a + b`` are
    the totals of both sets of rows. All numbers are centred: far from the origin,
    rounding would destroy ``sum |x|^2 / n - |mean|^2``.

    Attributes
    ----------
    count : int
        The number of rows n.
    mean : Tensor of shape (D,), float64
        Zero without rows.
    spread : float
        The trace of the total scatter, ``sum |x - mean|^2``.
    squares : Tensor of shape (D,), float64
        The diagonal of the total scatter: ``sum (x_d - mean_d)^2`` for each dimension
        d. Its sum equals `spread` up to rounding.
    """

    count: int
    mean: Tensor
    spread: float
    squares: Tensor

    @classmethod
    def empty(cls, dim: int) -> Totals:
        """The totals of no rows at all. Adding them changes nothing."""
        none = torch.zeros(dim, dtype=torch.float64)
        return cls(0, none, 0.0, none)

    @classmethod
    def of_rows(cls, features: Tensor) -> Totals:
        """Compute the totals of floating-point rows of shape (n, D)."""
        if not len(features):
            return cls.empty(features.shape[1])
        rows = features.to(torch.float64)
        # Differences from a row are exact if rows are close, and zero if all are equal.
        centred = rows - rows[0]
        shift = centred.mean(dim=0)
        squares = (centred - shift).square()
        spread = float(squares.sum())
        return cls(len(rows), rows[0] + shift, spread, squares.sum(dim=0))

    @classmethod
    def of_statistics(cls, statistics: Statistics) -> Totals:
        """The totals of all rows behind class statistics.

        If the statistics have no scatter, every row counts as if it lay at its class
        mean.
        """
        counts = statistics.weights
        total = float(counts.sum())
        if not total:
            return cls.empty(statistics.dim)
        mean = (counts / total) @ statistics.means
        offsets = (statistics.means - mean).square()
        spread = float(counts @ offsets.sum(dim=1)) + statistics.trace()
        squares = counts @ offsets + statistics.diagonal().clamp(min=0)
        return cls(int(total), mean, spread, squares)

    def __add__(self, other: Totals) -> Totals:
        if not isinstance(other, Totals):
            return NotImplemented
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        delta, share = other.mean - self.mean, other.count / count
        between = delta.square()
        spread = self.spread + other.spread
        spread += float(between.sum()) * self.count * share
        squares = self.squares + other.squares + between * (self.count * share)
        return Totals(count, self.mean + share * delta, spread, squares)

    def __radd__(self, other):
        return self if isinstance(other, int) and other == 0 else NotImplemented
