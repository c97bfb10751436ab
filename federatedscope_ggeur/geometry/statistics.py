"""Counts, means and covariances of classes, and their exact merge.

`ClassStatistics` obeys one law. Adding two objects gives the statistics of the two data
sets together. Subtracting gives the statistics of the rows that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError

from .moments import Located, Means, moments
from .scatter import Scatter

#: The largest allowed entry of an embedding or a mean, far below the limit of float32.
#: So squares and scatters stay finite, and in float64 squared scatters do, too.
LARGEST_EMBEDDING = 1e15


class ClassStatistics(Located):
    r"""Counts, means and covariances of `C` classes of `D`-dimensional embeddings.

    Objects are immutable. All sums are float64, and centred.

    Attributes
    ----------
    counts : Tensor of shape (C,), int64
        Samples of each class.
    means : Tensor of shape (C, D), float64
        Class means. Zero for a class without samples.
    classes : list of int
        Classes with at least one sample, ascending.

    Notes
    -----
    ``a + b`` is Eq. 4 of the paper (the parallel-axis theorem)

    $$\Sigma = \frac{1}{N} \Big[ \sum_k n_k \Sigma_k
    + \sum_k n_k (\mu_k - \mu)(\mu_k - \mu)^T \Big]$$

    applied to two parts at a time, on the scatter ``n Sigma`` (Chan et al., 1979). A
    mean is kept as an unevaluated sum of two float64 numbers. So differences of means
    stay exact even if the data lie far from the origin.

    References
    ----------
    Ma et al., CVPR 2025, Eq. 4; Chan, Golub, LeVeque, "Updating formulae and a pairwise
    algorithm for computing sample variances", 1979.
    """

    def __init__(self, located: Means, scatters: Mapping[int, Scatter]):
        super().__init__(located)
        self._scatters = dict(scatters)

    @classmethod
    def empty(cls, num_classes: int, dim: int) -> ClassStatistics:
        """The statistics of no rows at all. Adding them changes nothing."""
        zeros = torch.zeros(num_classes, dim)
        return cls(Means.rounded(torch.zeros(num_classes), zeros), {})

    @classmethod
    def from_embeddings(
        cls, features: Tensor, labels: Tensor, num_classes: int
    ) -> ClassStatistics:
        """Make the statistics of embeddings with class labels.

        Parameters
        ----------
        features : Tensor of shape (n, D), floating point
        labels : Tensor of shape (n,), integer, in ``0..num_classes-1``
        num_classes : int

        Raises
        ------
        StatisticsError
            Shapes do not fit, values are NaN or infinite, or labels are out of range.
        """
        features, labels = torch.as_tensor(features), torch.as_tensor(labels)
        check_embeddings(features, labels, num_classes)
        result = cls.empty(num_classes, features.shape[1])
        for c in labels.unique().tolist():
            rows = features[labels == c].to(torch.float64)
            high, low, result._scatters[c] = moments(rows)
            result.located.counts[c] = len(rows)
            result.located.high[c], result.located.low[c] = high, low
        return result

    @classmethod
    def from_moments(
        cls,
        counts: Tensor,
        means: Tensor,
        factors: Mapping[int, Tensor] | None = None,
        covariances: Mapping[int, Tensor] | None = None,
    ) -> ClassStatistics:
        """Rebuild statistics from the parts that arrived in a message.

        Parameters
        ----------
        counts : Tensor of shape (C,)
        means : Tensor of shape (C, D)
        factors : mapping from class to Tensor of shape (r, D)
            ``F`` with ``F^T F = n Sigma``.
        covariances : mapping from class to Tensor of shape (D, D)
            ``Sigma`` (divided by n) of each class that is not in `factors`.
        """
        scatters = {
            c: Scatter.from_factor(factor.to(torch.float64))
            for c, factor in (factors or {}).items()
        }
        for c, covariance in (covariances or {}).items():
            scatters[c] = Scatter.from_dense(
                covariance.to(torch.float64) * int(counts[c])
            )
        statistics = cls(Means.rounded(counts, means), scatters)
        unlike = scatters.keys() ^ set(statistics.classes)
        if unlike:
            raise StatisticsError(
                f"classes {sorted(unlike)} have samples without a covariance, or a "
                f"covariance without samples"
            )
        return statistics

    def scatter(self, c: int) -> Tensor:
        """The scatter ``n Sigma`` of class `c`: Tensor of shape (D, D), float64."""
        return self._scatter_of(c).matrix()

    def covariance(self, c: int) -> Tensor:
        """The covariance ``Sigma`` of class `c`, divided by n: Tensor of shape (D, D),
        float64.

        Raises
        ------
        StatisticsError
            The class has no samples.
        """
        return self.scatter(c) / int(self.counts[c])

    def factor(self, c: int) -> Tensor:
        """The thin factor of class `c`: ``F`` of shape (rank, D) with ``F^T F = n
        Sigma``.

        F is a function of ``n Sigma`` alone; see `thin_factor`.
        """
        return self._scatter_of(c).factor()

    def stacked_rows(self, c: int) -> Tensor | None:
        """Rows ``R`` [r, D] with ``R^T R = n Sigma``; None for a dense scatter.

        R is not canonical. Use it for computations on the spot, and never send it.
        """
        return self._scatter_of(c).rows()

    def factor_is_smaller(self, c: int) -> bool:
        """Whether the thin factor of class `c` has fewer numbers than the upper
        triangle."""
        return self._scatters[c].factor_is_smaller

    def trace_of(self, c: int) -> float:
        """The trace ``n tr(Sigma)`` of the scatter of class `c`."""
        return self._scatter_of(c).trace()

    def trace(self) -> float:
        """The trace of all scatters together: ``sum_c n_c tr(Sigma_c)``."""
        return sum(self._scatters[c].trace() for c in self.classes)

    def diagonal(self) -> Tensor:
        """The diagonal of the sum of all scatters: Tensor of shape (D,)."""
        none = torch.zeros(self.dim, dtype=torch.float64)
        return sum((self._scatters[c].diagonal() for c in self.classes), none)

    def mapped(
        self, centre: Tensor, linear: Callable[[Tensor], Tensor]
    ) -> ClassStatistics:
        """The statistics of the rows ``T (x - centre)``.

        Parameters
        ----------
        centre : Tensor of shape (D,), float64
        linear : callable (Tensor of shape (r, D)) -> Tensor of shape (r, D)
            Maps each row r to ``T r``.
        """
        scatters = {c: held.mapped(linear) for c, held in self._scatters.items()}
        return ClassStatistics(self.located.mapped(centre, linear), scatters)

    def with_means(self, means: Tensor) -> ClassStatistics:
        """The same statistics with other `means` [C, D]; the scatters stay."""
        return ClassStatistics(Means.rounded(self.counts, means), self._scatters)

    def restrict(self, classes: Iterable[int]) -> ClassStatistics:
        """The same statistics with the rows of `classes` only."""
        kept = set(classes) & set(self.classes)
        mask = torch.zeros(self.num_classes, dtype=torch.bool)
        mask[sorted(kept)] = True
        column, held = mask[:, None], self.located
        located = Means(held.counts * mask, held.high * column, held.low * column)
        return ClassStatistics(located, {c: self._scatters[c] for c in kept})

    def __add__(self, other: ClassStatistics) -> ClassStatistics:
        if not isinstance(other, ClassStatistics):
            return NotImplemented
        means, between = self.located.plus(other.located)
        scatters = {**self._scatters, **other._scatters}
        for c in self._scatters.keys() & other._scatters.keys():
            scatters[c] = self._scatters[c].plus(other._scatters[c], between[c])
        return ClassStatistics(means, scatters)

    def __sub__(self, other: ClassStatistics) -> ClassStatistics:
        if not isinstance(other, ClassStatistics):
            return NotImplemented
        means, between = self.located.minus(other.located)
        scatters = dict(self._scatters)
        for c in other._scatters:
            if means.counts[c] == 0:
                del scatters[c]
            elif means.counts[c] == 1:
                scatters[c] = Scatter.zero(self.dim)
            else:
                scatters[c] = self._scatters[c].minus(other._scatters[c], between[c])
        return ClassStatistics(means, scatters)

    def _scatter_of(self, c: int) -> Scatter:
        if not 0 <= c < self.num_classes:
            raise StatisticsError(
                f"class {c} is out of range: there are {self.num_classes} classes"
            )
        if self.counts[c] == 0:
            raise StatisticsError(
                f"class {c} has no samples, so it has no covariance; "
                f"'.classes' lists those that do"
            )
        return self._scatters[c]


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
