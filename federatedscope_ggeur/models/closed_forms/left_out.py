"""Scores of each row by the head of all other rows, without a new solution for each
row.

Each class here is made once, from the statistics of all rows. It then scores rows of
any client exactly as a head would that was computed without the row.

Temperatures that calibrate a head: its scores are divided by one before softmax.

A one-shot head is right more often, or less often, than the softmax of its scores says.
A temperature T does not change the class with the largest score, but it makes softmax
match how often that class is right. T is chosen by the smoothed log-loss of rows left
out of the statistics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from federatedscope_ggeur.progress import tick

from ..base import SMOOTHING, Model, with_equal_part
from .components import Components, ScoredRows

#: Turns rows into scores [n, C], a tensor for each candidate; -inf for unseen classes.
LeftOut = Callable[[ScoredRows], "list[Tensor]"]

#: Rounding leaves up to this share of a trace when the trace is subtracted from itself.
ROUNDING = 1e-12
#: A lower limit of denominators. Only compressed statistics, which do not hold the row
#: exactly, reach it.
LEAST = 1e-12
_CHUNK_ROWS = 512


def is_right(scores: Tensor, labels: Tensor) -> Tensor:
    """Whether scores [n, C] classify each row rightly: Tensor of shape (n,), bool."""
    return (scores.argmax(dim=1) == labels) & torch.isfinite(scores.amax(dim=1))


def left_out_hits(score: LeftOut, rows: ScoredRows) -> Tensor:
    """How many rows each candidate classifies rightly: shape (candidates,), int64.

    If rows have weights, it is the sum of their weights, float64. A row counts as wrong
    if no class is left without it.
    """
    hits: Tensor | int = 0
    for part in _parts(rows):
        right = [is_right(scores, part.labels) for scores in score(part)]
        counted = part.summed(torch.stack(right))
        tick(len(part))
        hits = hits + counted
    assert isinstance(hits, Tensor), "there is at least one part"
    return hits


def _parts(rows: ScoredRows) -> Iterator[ScoredRows]:
    """The rows, some at a time; without rows one part of none."""
    for start in range(0, max(1, len(rows)), _CHUNK_ROWS):
        yield rows.part(slice(start, start + _CHUNK_ROWS))


class Left(NamedTuple):
    """Rows x, and the statistics without each row, in the eigenbasis of the scatter."""

    x: Tensor  # [n, D] relative to the mean of all rows
    z: Tensor  # [n, D] relative to the mean of the own component; 0 without one
    own: Tensor  # [n] the own component, or -1
    growth: Tensor  # [n] n_j / (n_j - w); 0 if the row is in no component, or alone
    part: Tensor  # [n] w times growth: of z z', what the scatter loses
    degrees: Tensor  # [n] degrees of freedom without the row
    trace: Tensor  # [n] of the scatter without the row
    plain: Tensor  # [n] whether no scatter is left
    log_priors: Tensor  # [n, J]


class DiscriminantLeftOut:
    """Scores rows by LDA, the mixture or nearest means, leaving out each row in turn.

    Parameters
    ----------
    parts : Components
        One component for each class (LDA), or several.
    shrinkages : sequence of float, or None
        Shares g of the spherical covariance, one for each candidate. None stands for
        one candidate whose covariance is the identity.
    priors : {"counts", "none"}

    Attributes
    ----------
    basis : Tensor of shape (D, D)
        The eigenbasis of the scatter.
    means : Tensor of shape (J, D)
        The components' means relative to the mean of all rows, in `basis`.

    Notes
    -----
    Let x be a row of component j with the weight w (1 by default), z = x - mu_j, and S
    the summed scatter. n_j and N are sums of weights. Without x, the scatter is ``S - w
    n_j/(n_j - w) z z'``. Its trace is t, and it has v = N - w - J degrees of freedom.
    So the covariance is ``A - b z z'``, with A diagonal in the eigenbasis of S::

        A = (1 - g) S / v + g t / (v D) I,   b = (1 - g) w n_j / ((n_j - w) v)

    Let q = z' A^-1 z and a = x - mu_l. The squared distance of x to another component l
    is ``a' A^-1 a + b (a' A^-1 z)^2 / (1 - b q)`` (Sherman and Morrison). The mean of
    its own component moves away from x. The squared distance to it is ``(n_j / (n_j -
    w))^2 (q + b q^2 / (1 - b q))``. If x is the only row of its component, the
    component vanishes, and S is unchanged.
    """

    def __init__(
        self,
        parts: Components,
        shrinkages: Sequence[float] | None,
        priors: str,
    ):
        self.parts, self._shrinkages, self._priors = parts, shrinkages, priors
        if shrinkages is None:
            self._values = torch.zeros(parts.dim, dtype=torch.float64)
            self.basis = torch.eye(parts.dim, dtype=torch.float64)
        else:
            self._values, self.basis = parts.axes
        self.means = (parts.means - parts.origin) @ self.basis

    def __call__(self, rows: ScoredRows) -> list[Tensor]:
        left = self.left(rows)

        def scores(g: float) -> Tensor:
            inverse, b = self.covariance(g, left)
            distances = self.distances(left, inverse, b, self.means)
            shares = torch.nonzero(left.growth > 0).flatten()
            q = (left.z.square() * inverse).sum(dim=1)
            more = b / (1 - b * q).clamp(min=LEAST)
            to_own = left.growth.square() * (q + more * q.square())
            distances[shares, left.own[shares]] = to_own[shares]
            return self.by_class(left.log_priors - distances / 2)

        # Nearest means use no scatter, so any shrinkage gives the same.
        return [scores(g) for g in self._shrinkages or [1.0]]

    def left(self, rows: ScoredRows) -> Left:
        """The rows, and the statistics without each row."""
        parts, own, taken = self.parts, rows.own(self.parts), rows.taken
        x = (rows.features.double() - parts.origin) @ self.basis
        inside, place = own >= 0, own.clamp(min=0)
        taken = taken * inside
        alone = inside & (parts.counts[place] == 1)
        shares, counts = inside & ~alone, parts.weights[place]
        rest = (counts - taken).masked_fill(~shares, 1)
        growth = torch.where(shares, counts / rest, 0 * counts)
        part = taken * growth
        z = (x - self.means[place]) * shares[:, None]
        degrees = parts.total - taken - (len(parts.counts) - alone.double())
        trace = self._values.sum()
        left = trace - part * z.square().sum(dim=1)
        plain = (degrees <= 0) | (left <= ROUNDING * trace)
        log_priors = self._log_priors(own, taken, alone)
        return Left(x, z, own, growth, part, degrees, left, plain, log_priors)

    def covariance(self, g: float, left: Left) -> tuple[Tensor, Tensor]:
        """The diagonals of A^-1 [n, D], and the factors b [n], for a shrinkage g."""
        v, size = left.degrees.clamp(min=1), left.trace / self.parts.dim
        inverse = (1 - g) * self._values / v[:, None] + (g * size / v)[:, None]
        # Without any scatter the covariance is the identity.
        inverse = torch.where(left.plain[:, None], torch.ones_like(inverse), inverse)
        b = torch.where(left.plain, torch.zeros_like(v), (1 - g) * left.part / v)
        return 1 / inverse, b

    def distances(self, left: Left, inverse, b, means) -> Tensor:
        """Squared distances of n rows to the `means` of all J components: shape (n, J).

        The distance of a row to its own component is not valid here: its mean moves.
        """
        x, z = left.x, left.z
        xw, zw = x * inverse, z * inverse
        q = (zw * z).sum(dim=1)
        cross = (zw * x).sum(dim=1)[:, None] - zw @ means.T
        distances = (xw * x).sum(dim=1)[:, None] - 2 * xw @ means.T
        distances += inverse @ means.square().T
        more = b / (1 - b * q).clamp(min=LEAST)
        distances += more[:, None] * cross.square()
        return distances

    def _log_priors(self, own: Tensor, taken: Tensor, alone: Tensor) -> Tensor:
        """The log prior of each component without the row: shape (n, J).

        It is -inf if the component vanishes without the row.
        """
        counts = self.parts.weights.repeat(len(own), 1)
        index = torch.nonzero(own >= 0).flatten()
        counts[index, own[index]] -= taken[index]
        counts[alone, own[alone]] = 0
        logs = counts.log()
        if self._priors == "none":
            # Classes are equal; within one, components count for their shares.
            shares = logs - self.by_class(logs)[:, self.parts.labels]
            return torch.where(counts > 0, shares, logs)
        return logs - counts.sum(dim=1, keepdim=True).log()

    def by_class(self, scores: Tensor) -> Tensor:
        """Turn scores of components [n, J] into scores of classes [n, C].

        The score of a class is the log-sum-exp of its components' scores.
        """
        return sum_by_class(scores, self.parts.labels, self.parts.num_classes)


def sum_by_class(scores: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """The log-sum-exp of scores [n, J] over the components of each class: shape (n, C).

    A class without components gets -inf.
    """
    summed = scores.new_full((len(scores), num_classes), -torch.inf)
    if len(labels) == len(labels.unique()):
        summed[:, labels] = scores
        return summed
    for c in labels.unique().tolist():
        summed[:, c] = scores[:, labels == c].logsumexp(dim=1)
    return summed


class RidgeLeftOut:
    """Scores rows by ridge regression on one-hot labels, leaving out each row in turn.

    Parameters
    ----------
    parts : Components
        One component for each class.
    strengths : sequence of float
        Multiples a of the mean eigenvalue of T, the Gram matrix of the centred rows.

    Notes
    -----
    Let x be relative to the mean of all rows, with the weight w (1 by default), lambda
    fixed, and the intercept not penalised. N is the sum of weights. Then ``h = w (1/N +
    x' (T + lambda I)^-1 x)`` is the row's entry of the hat matrix. The prediction of a
    row without itself is ``(f(x) - h y) / (1 - h)``, where f is the regression on all
    rows. Without the row, lambda changes by ``-a w N / ((N - w) D) |x|^2``. So f and h
    are computed with the changed lambda. T + lambda I stays diagonal in the same
    eigenbasis.
    """

    def __init__(self, parts: Components, strengths: Sequence[float]):
        self._parts, self._strengths = parts, strengths
        offsets = parts.means - parts.origin
        sums = parts.weights[:, None] * offsets
        values, self._basis = torch.linalg.eigh(parts.within() + offsets.T @ sums)
        self._values, self._sums = values.clamp(min=0), sums @ self._basis

    def __call__(self, rows: ScoredRows) -> list[Tensor]:
        parts, own = self._parts, rows.own(self._parts)
        x = (rows.features.double() - parts.origin) @ self._basis
        inside, n = own >= 0, parts.total
        taken = rows.taken * inside
        rest = n - taken
        rest = rest.masked_fill(rest <= ROUNDING * n, 1)
        targets = torch.zeros(len(own), len(parts.counts), dtype=torch.float64)
        index = torch.nonzero(inside).flatten()
        targets[index, own[index]] = 1
        growth = taken * (n / rest)
        trace = self._values.sum()
        left = trace - growth * x.square().sum(dim=1)
        flat = left <= ROUNDING * trace
        gone = inside & (parts.counts[own.clamp(min=0)] == 1)
        shares = (parts.weights - taken[:, None] * targets) / rest[:, None]

        def scores(strength: float) -> Tensor:
            weight = torch.where(
                flat, torch.ones_like(left), strength * left / parts.dim
            )
            inverse = 1 / (self._values + weight[:, None])
            outputs = parts.weights / n + (x * inverse) @ self._sums.T
            hat = taken * (1 / n + (x.square() * inverse).sum(dim=1))
            without = outputs - hat[:, None] * targets
            without = without / (1 - hat[:, None]).clamp(min=LEAST)
            outputs = torch.where(inside[:, None], without, outputs)
            outputs = torch.where((flat & inside)[:, None], shares, outputs)
            outputs[gone, own[gone]] = -torch.inf
            return sum_by_class(outputs, parts.labels, parts.num_classes)

        return [scores(strength) for strength in self._strengths]


#: Number of temperatures that are tried, in half-octaves from 2^-8 to 2^4 times the
#: spread of the scores.
TEMPERATURES = 25
_LOWEST = -8
#: Log-losses are sent as multiples of 1/64 nat, because exact ones would identify rows.
LOSS_UNITS = 64
LARGEST_LOSS = 2**50
#: Bins for the largest probability of a row.
CONFIDENCE_BINS = 65


def temperatures(spread: float) -> tuple[float, ...]:
    """The temperatures to try: half-octaves around the `spread` of scores, ascending.

    1 is always among them. If 1 lies outside the range, it replaces the nearer end.
    """
    first = round(2 * math.log2(spread)) + 2 * _LOWEST if spread > 0 else 2 * _LOWEST
    steps = list(range(first, first + TEMPERATURES))
    if 0 not in steps:
        steps[0 if first > 0 else -1] = 0
    return tuple(2.0 ** (step / 2) for step in steps)


def spread_of_scores(model: Model, components: Components) -> float:
    """How far apart a head's scores of the classes are, measured at the class means.

    It is the root mean square of the scores about the mean over classes, with each
    class mean weighted by its rows.
    """
    parts = components.merged("class")
    scores = model.in_chunks(model, parts.means.float()).double()[:, parts.classes]
    return spread_at_means(scores, parts.weights)


def spread_at_means(scores: Tensor, weights: Tensor) -> float:
    """`spread_of_scores`, given the scores of the class means [C', C'] and the rows of
    each class [C']."""
    centred = scores - scores.mean(dim=1, keepdim=True)
    each = centred.square().mean(dim=1)
    return float((weights @ each / weights.sum()).sqrt())


def left_out_losses(
    score: LeftOut,
    rows: ScoredRows,
    by: Sequence[float],
    floors: Sequence[float] = (0.0,),
) -> tuple[Tensor, int, float]:
    """The summed `log_losses` of rows, and of how many rows.

    Losses are summed by the rows' weights, if they have weights.

    Parameters
    ----------
    score : LeftOut
    rows : ScoredRows
    by, floors : sequence of float
        The temperatures and the floors.

    Returns
    -------
    Tensor of shape (candidates, len(floors) x len(by)), float64
        The sums in nats, without the rows whose class has no score.
    int
        The number of the other rows.
    float
        The sum of their weights.
    """
    candidates = len(score(rows.part(slice(0))))
    total = torch.zeros(candidates, len(floors) * len(by), dtype=torch.float64)
    known, weight = 0, 0.0
    for part in _parts(rows):
        for place, scores in enumerate(score(part)):
            losses, scored = log_losses(scores, part.labels, by, floors)
            total[place] += part.summed(losses, scored)
        rows_now = int(scored.sum())  # the same rows for every candidate
        known += rows_now
        weight += float(part.summed(torch.ones(rows_now), scored))
    return total, known, weight


def log_losses(
    scores: Tensor,
    labels: Tensor,
    by: Sequence[float],
    floors: Sequence[float] = (0.0,),
) -> tuple[Tensor, Tensor]:
    """The smoothed log-loss of rows at each temperature, for rows whose class has a
    score.

    It is ``-log((1 - s) q + s / C)``, with `SMOOTHING` as s and ``q = (1 - e) p + e /
    C``, where e is a floor.

    Parameters
    ----------
    scores : Tensor of shape (n, C)
    labels : Tensor of shape (n,), int64
    by, floors : sequence of float
        The temperatures and the floors.

    Returns
    -------
    Tensor of shape (len(floors) x len(by), m)
        The log-losses of the m rows whose class has a score. First those with the
        first floor, at each temperature; then those with the next.
    Tensor of shape (n,), bool
        Whether the class of each row has a score.
    """
    own = scores.gather(1, labels[:, None])[:, 0]
    scored = torch.isfinite(own)
    scores, own = scores[scored], own[scored]
    logs = torch.stack([own / t - (scores / t).logsumexp(dim=1) for t in by])
    each = []
    for floor in floors:
        equal = SMOOTHING + floor - SMOOTHING * floor
        least = torch.full_like(logs, math.log(equal / scores.shape[1]))
        each.append(-torch.logaddexp(logs + math.log1p(-equal), least))
    return torch.cat(each), scored


def confidence_edges() -> Tensor:
    """The upper edges of the `CONFIDENCE_BINS` bins of confidences, float64.

    Bins become narrow near 1, where the confidences of a good head lie.
    """
    wide = torch.arange(1, 32, dtype=torch.float64) / 32
    narrow = 1 - 2.0 ** -(5 + torch.arange(1, 34, dtype=torch.float64) / 2)
    return torch.cat([wide, narrow, torch.ones(1, dtype=torch.float64)])


def left_out_confidences(
    score: LeftOut, rows: ScoredRows, temperature: float, floor: float = 0.0
) -> Tensor:
    """The number of rows whose largest probability lies in each bin: int64.

    `score` must have one candidate. If no class is left without a row, the row counts
    in the lowest bin.
    """
    counts = torch.zeros(CONFIDENCE_BINS, dtype=torch.int64)
    edges = confidence_edges()
    for part in _parts(rows):
        (scores,) = score(part)
        shares = Model.probabilities(scores / temperature)
        largest = with_equal_part(shares, floor).amax(dim=1).nan_to_num(0.0)
        place = torch.bucketize(largest.double(), edges[:-1])
        counts += torch.bincount(place, minlength=CONFIDENCE_BINS)
    return counts


def left_out_logits(score: LeftOut, rows: ScoredRows, temperature: float) -> Tensor:
    """The scores of each row, divided by the temperature: shape (n, C), float64.

    `score` must have one candidate. If no class is left without a row, all its
    logits are 0.
    """
    logits = torch.cat([score(part)[0] for part in _parts(rows)]) / temperature
    unknown = torch.isneginf(logits).all(dim=1, keepdim=True)
    return logits.masked_fill(unknown, 0.0)


def in_units(losses: Tensor) -> Tensor:
    """Round sums of log-losses to whole multiples of 1/64 nat: int64."""
    return (losses * LOSS_UNITS).clamp(max=LARGEST_LOSS).round().long()


def best_temperature(
    losses: Sequence[float], by: Sequence[float]
) -> tuple[float, float]:
    """The temperature with the least log-loss, interpolated between those in `by`, and
    its log-loss.

    Of several with the same loss the one nearest to 1 counts. The result is the lowest
    point of a parabola in log T through the lowest loss and its two neighbours. The
    log-loss falls and then rises with T. So temperatures in `by` beyond these three are
    no better.
    """
    lowest = min(range(len(by)), key=lambda i: (losses[i], abs(math.log(by[i]))))
    if by[lowest] == 1.0 or not 0 < lowest < len(by) - 1:
        return by[lowest], losses[lowest]
    (left, x0), (right, x1) = (
        (losses[i] - losses[lowest], math.log(by[i] / by[lowest]))
        for i in (lowest - 1, lowest + 1)
    )
    curvature = (left / x0 - right / x1) / (x0 - x1)
    if curvature <= 0:
        return by[lowest], losses[lowest]
    slope = left / x0 - curvature * x0
    place = -slope / (2 * curvature)
    return by[lowest] * math.exp(place), losses[lowest] + slope * place / 2
