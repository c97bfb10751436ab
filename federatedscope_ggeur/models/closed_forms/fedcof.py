"""FedCOF: estimate covariances from the spread of the clients' class means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..base import Model
from .base import ClosedForm, Seen, linear_head, register_closed_form, strength_key
from .components import Components, ScoredRows
from .left_out import ROUNDING, LeftOut

#: A shorter vector counts as a vector of length 0.
_TINY = 1e-300


@register_closed_form("fedcof")
class FedCOF(ClosedForm):
    """A linear head from clients' class means alone.

    Its weights are ``G^-1 n_c mu_c``, scaled to length 1. It has no biases.

    The mean of n rows of a class varies over clients with the covariance Sigma / n. So
    the means alone show a covariance::

        Sigma_c = sum_k n_kc (mu_kc - mu_c)(mu_kc - mu_c)' / (K_c - 1) + gamma I G =
        sum_c (n_c - 1) Sigma_c + N mu mu'

    K_c is the number of clients that sent class c. If only one client has a class, the
    first term of its Sigma_c is zero. The result depends on which client has which
    rows.

    Parameters
    ----------
    strength : float, optional
        gamma as a multiple of the mean variance in the first terms, so that the scale
        of embeddings does not matter. If no class has two clients, gamma is a multiple
        of the mean square of the class means. If None, leave-one-out chooses the
        strength; if that is impossible, it is 1.

    Notes
    -----
    In the paper gamma is an absolute number. If ``sum_c (n_c - 1)`` is 0, it counts as
    1.

    References
    ----------
    Dipam Goswami et al., "Covariances for free: exploiting mean distributions for
    training-free federated learning", 2024 (arXiv 2412.14326), Eq. 6 to 8.
    """

    meaning = "covariances from the spread of clients' class means; counts and means"
    source = "FedCOF 2024"
    SETTINGS = (
        strength_key(
            "FedCOF: number that is added to the variances estimated from class means, "
            "as a "
        ),
    )
    NEEDS = "means"
    # Fewer values than in other forms, because leaving rows out costs more here.
    TUNED, GRID, UNTUNED = "strength", (10.0, 1.0, 0.1, 0.01, 0.001), 1.0
    partition_free = False
    grain = "client"

    strength: float | None

    def work_out(self, seen: Seen) -> tuple[Model, dict]:
        strength = self.chosen
        spread = ScatterEstimate.of(seen.components)
        size = strength * spread.size(spread.total)
        gram = spread.matrix + size * torch.eye(seen.dim, dtype=torch.float64)
        origin = seen.components.origin
        gram += spread.total * torch.outer(origin, origin)
        sums = seen.counts[:, None] * seen.means
        weight = torch.linalg.solve(gram, sums.T).T
        weight = weight / weight.norm(dim=1, keepdim=True).clamp(min=_TINY)
        bias = torch.zeros(len(weight), dtype=torch.float64)
        return linear_head(weight, bias, seen), {"strength": float(strength)}

    def left_out(self, components: Components) -> LeftOut:
        return FedCOFLeftOut(components, [form.chosen for form in self.candidates()])


@dataclass(frozen=True)
class ScatterEstimate:
    """The scatter within classes, estimated from the class means of clients.

    Attributes
    ----------
    matrix : Tensor of shape (D, D)
        ``sum_c (n_c - 1) B_c / (K_c - 1)`` over classes with at least two clients. B_c
        is the scatter of the clients' means, weighted by their counts.
    ratios, traces : Tensor of shape (C',)
        The factor ``(n_c - 1) / (K_c - 1)`` of each class, zero for one client, and the
        trace of its B_c.
    counts, clients : Tensor of shape (C',)
        n_c and K_c of each class.
    means : Tensor of shape (C', D)
    classes : list of int
    """

    matrix: Tensor
    ratios: Tensor
    traces: Tensor
    counts: Tensor
    clients: Tensor
    means: Tensor
    classes: list[int]

    @classmethod
    def of(cls, parts: Components) -> ScatterEstimate:
        whole = parts.merged("class")
        place = torch.zeros(parts.num_classes, dtype=torch.int64)
        place[whole.labels] = torch.arange(len(whole.labels))
        group = place[parts.labels]
        apart = parts.weights.sqrt()[:, None] * (parts.means - whole.means[group])
        counts = whole.weights
        clients = group.bincount(minlength=len(counts)).double()
        ratios = _ratios(counts, clients)
        traces = torch.zeros_like(counts).index_add(0, group, apart.square().sum(dim=1))
        matrix = apart.T @ (ratios[group][:, None] * apart)
        return cls(matrix, ratios, traces, counts, clients, whole.means, whole.classes)

    @property
    def total(self) -> float:
        return float(self.counts.sum())

    def sums(self) -> tuple[Tensor, Tensor, Tensor]:
        """The three sums that `gamma` needs.

        They are the trace that the means show, its degrees of freedom, and the sum over
        all rows of the squared length of their class mean.
        """
        several = (self.clients > 1).double()
        return (
            (self.ratios * self.traces).sum(),
            (several * (self.counts - 1)).sum(),
            (self.counts * self.means.square().sum(dim=1)).sum(),
        )

    def size(self, total: float) -> float:
        """The number that is added to the diagonal of G if the strength is 1."""
        free, dim = total - len(self.counts), self.means.shape[1]
        return float(gamma(*self.sums(), total, free, dim))


def _ratios(counts: Tensor, clients: Tensor) -> Tensor:
    """``(n - 1) / (K - 1)`` for each class; zero if only one client has the class."""
    several = clients > 1
    ratio = (counts - 1) / torch.where(several, clients - 1, torch.ones_like(clients))
    return torch.where(several, ratio, torch.zeros_like(ratio))


def gamma(
    shown: Tensor, degrees: Tensor, squares: Tensor, total: float, free: float, dim: int
) -> Tensor:
    """The number that a strength of 1 adds to the diagonal of G.

    It is gamma times ``sum_c (n_c - 1)``.

    Parameters
    ----------
    shown, degrees, squares : Tensor, all of one shape
        The sums that `Spread.sums` returns.
    total, free : float
        N, and N minus the number of classes.
    dim : int
    """
    mean_square = squares / (max(total, 1) * dim)
    variance = shown / (degrees.clamp(min=1) * dim)
    nothing = variance <= ROUNDING * mean_square
    variance = torch.where(nothing, mean_square, variance)
    variance = torch.where(variance > 0, variance, torch.ones_like(variance))
    return variance * max(free, 1)


class FedCOFLeftOut:
    """Scores rows by FedCOF, leaving out each row in turn.

    Without a row of client k and class c, one mean moves or vanishes, and K_c, n_c and
    gamma change. So G changes by a multiple of I, which is diagonal in any basis, and
    by a matrix of rank K_c + 3 made from the means of class c. The Woodbury identity
    gives the inverse.
    """

    def __init__(self, parts: Components, strengths: Sequence[float]):
        self._parts, self._strengths = parts, strengths
        self._spread = spread = ScatterEstimate.of(parts)
        values, self._basis = torch.linalg.eigh(spread.matrix)
        self._values = values.clamp(min=0)
        self._means = parts.means @ self._basis
        self._class_means = spread.means @ self._basis
        self._sums = spread.counts[:, None] * self._class_means
        self._origin = parts.origin @ self._basis

    def __call__(self, rows: ScoredRows) -> list[Tensor]:
        own = rows.own(self._parts)
        features = rows.features.double() @ self._basis
        shape = len(rows), self._parts.num_classes
        found = [torch.full(shape, -torch.inf).double() for _ in self._strengths]
        for j in own.unique().tolist():
            for index in torch.nonzero(own == j).flatten().split(_ROWS_AT_ONCE):
                scored = self._score(features[index], j)
                for held, scores in zip(found, scored):
                    held[index[:, None], self._spread.classes] = scores
        return found

    def _score(self, x: Tensor, j: int) -> list[Tensor]:
        """Scores [r, C'] of rows x [r, D] of component j, one tensor for each strength.

        Each row is left out of its component. If j is -1, the rows are in no component.
        """
        change = self._none(x) if j < 0 else self._without(x, j)
        answers = []
        for strength in self._strengths:
            inverse = 1 / (self._values + strength * change.size[:, None])
            scores = self._cosines(x, inverse, change)
            if change.is_gone:
                scores[:, change.own] = -torch.inf
            answers.append(scores)
        return answers

    def _none(self, x: Tensor) -> _Change:
        size = self._spread.size(self._spread.total)
        return _Change(
            torch.full((len(x),), size, dtype=torch.float64),
            self._origin.expand(len(x), 1, -1),
            torch.tensor([self._spread.total], dtype=torch.float64),
        )

    def _without(self, x: Tensor, j: int) -> _Change:
        spread, parts = self._spread, self._parts
        i = spread.classes.index(int(parts.labels[j]))
        members = torch.nonzero(parts.labels == parts.labels[j]).flatten()
        n, n_c, k_c = (
            float(count)
            for count in (parts.counts[j], spread.counts[i], spread.clients[i])
        )
        k_left, mu = k_c - (n == 1), self._class_means[i]
        # All relative to the old class mean: the mean of each client, of this client
        # without the row, and of the class without the row.
        apart = self._means[members] - mu
        moved = (self._means[j] - mu) - (x - self._means[j]) / max(n - 1, 1)
        shift = -(x - mu) / max(n_c - 1, 1)
        ratio = float(spread.ratios[i])
        left = (n_c - 2) / (k_left - 1) if k_left > 1 else 0.0
        trace = spread.traces[i] - n * (self._means[j] - mu).square().sum()
        trace = trace + (n - 1) * moved.square().sum(dim=1)
        trace = (trace - (n_c - 1) * shift.square().sum(dim=1)).clamp(min=0)
        shown, degrees, squares = spread.sums()
        total = spread.total - 1
        mean_square = (mu + shift).square().sum(dim=1)
        size = gamma(
            shown - ratio * spread.traces[i] + left * trace,
            degrees - (k_c > 1) * (n_c - 1) + (k_left > 1) * (n_c - 2),
            squares - n_c * mu.square().sum() + (n_c - 1) * mean_square,
            total,
            total - (len(spread.counts) - (n_c == 1)),
            x.shape[1],
        )
        origin = (spread.total * self._origin - x) / max(total, 1)
        added = torch.stack([moved, shift, origin], dim=1)
        signs = parts.weights[members] * (left - ratio)
        signs[members == j] = -ratio * n
        last = signs.new_tensor([left * (n - 1), -left * (n_c - 1), total])
        return _Change(
            size,
            torch.cat([apart.expand(len(x), -1, -1), added], dim=1),
            torch.cat([signs, last]),
            own=i,
            is_gone=n_c == 1,
        )

    def _cosines(self, x: Tensor, inverse: Tensor, change: _Change) -> Tensor:
        """The cosine of each row and each class's weights: shape (r, C').

        It is ``x' w / |w|`` with ``w = G^-1 n_c mu_c``.

        ``G = diag(1 / inverse) + V' diag(s) V``, with the vectors V and signs s of
        `change`.
        """
        own, mine = change.own, None
        if own is not None:
            mine = self._sums[own] - x

        def times_sums(rows: Tensor) -> Tensor:
            """Products of [r, ..., D] with the class sums: [r, ..., C'].

            The sum of each row's own class excludes the row.
            """
            products = rows @ self._sums.T
            if mine is not None:
                products[..., own] = torch.einsum("r...d,rd->r...", rows, mine)
            return products

        scaled = change.vectors * inverse[:, None]
        core = change.signs[:, None] * (scaled @ change.vectors.transpose(1, 2))
        core = core + torch.eye(len(change.signs), dtype=core.dtype)
        right = change.signs[:, None] * times_sums(scaled)
        turned = torch.linalg.solve(core, right)
        along = (scaled @ x[:, :, None]).transpose(1, 2) @ turned
        found = times_sums(x * inverse) - along[:, 0]
        squares = inverse.square() @ self._sums.square().T
        if mine is not None:
            squares[:, own] = (inverse * mine).square().sum(dim=1)
        squares = squares - 2 * (turned * times_sums(scaled * inverse[:, None])).sum(1)
        squares += (turned * (scaled @ scaled.transpose(1, 2) @ turned)).sum(dim=1)
        return found / squares.clamp(min=0).sqrt().clamp(min=_TINY)


@dataclass(frozen=True)
class _Change:
    """The changes of G when a row is left out, for r rows of one component.

    Attributes
    ----------
    size : Tensor of shape (r,)
        The result of `gamma`, which is for a strength of 1.
    vectors : Tensor of shape (r, p, D)
    signs : Tensor of shape (p,)
        ``sum_i signs_i v_i v_i'`` is added to the matrix of `ScatterEstimate`.
    own : int or None
        The index of the rows' class among the classes with samples; None without one.
    is_gone : bool
        Whether the class has no other row.
    """

    size: Tensor
    vectors: Tensor
    signs: Tensor
    own: int | None = None
    is_gone: bool = False


_ROWS_AT_ONCE = 64
