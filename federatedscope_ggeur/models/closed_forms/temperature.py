"""Temperatures that calibrate a head: its scores are divided by one before softmax.

A one-shot head is right more often, or less often, than the softmax of its scores says.
A temperature T does not change the class with the largest score, but it makes softmax
match how often that class is right. T is chosen by the smoothed log-loss of rows left
out of the statistics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..base import SMOOTHING, Model
from .components import Components, Rows
from .left_out import LeftOut

#: Number of temperatures that are tried, in half-octaves from 2^-8 to 2^4 times the
#: spread of the scores.
TEMPERATURES = 25
_LOWEST = -8
#: Log-losses are sent as multiples of 1/64 nat, because exact ones would identify rows.
LOSS_UNITS = 64
LARGEST_LOSS = 2**50
#: Bins for the largest probability of a row.
CONFIDENCE_BINS = 65
_CHUNK_ROWS = 512


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
    centred = scores - scores.mean(dim=1, keepdim=True)
    each = centred.square().mean(dim=1)
    return float((parts.weights @ each / parts.total).sqrt())


def left_out_losses(
    score: LeftOut, rows: Rows, by: Sequence[float]
) -> tuple[Tensor, int]:
    """The summed `log_losses` of rows at each temperature, and the number of rows.

    Losses are summed by the rows' weights, if they have weights.

    Parameters
    ----------
    score : LeftOut
    rows : Rows
    by : sequence of float
        The temperatures.

    Returns
    -------
    Tensor of shape (candidates, len(by)), float64
        The sums in nats, without the rows whose class has no score.
    int
    """
    candidates = len(score(rows.part(slice(0))))
    total, known = torch.zeros(candidates, len(by), dtype=torch.float64), 0
    for start in range(0, len(rows), _CHUNK_ROWS):
        part = rows.part(slice(start, start + _CHUNK_ROWS))
        for place, scores in enumerate(score(part)):
            losses, scored = log_losses(scores, part.labels, by)
            total[place] += part.summed(losses, scored)
        known += int(scored.sum())  # the same rows for every candidate
    return total, known


def log_losses(
    scores: Tensor, labels: Tensor, by: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """The smoothed log-loss of rows at each temperature, for rows whose class has a
    score.

    It is ``-log((1 - s) p + s / C)``, with `SMOOTHING` as s.

    Parameters
    ----------
    scores : Tensor of shape (n, C)
    labels : Tensor of shape (n,), int64
    by : sequence of float
        The temperatures.

    Returns
    -------
    Tensor of shape (len(by), m)
        The log-losses of the m rows whose class has a score.
    Tensor of shape (n,), bool
        Whether the class of each row has a score.
    """
    own = scores.gather(1, labels[:, None])[:, 0]
    scored = torch.isfinite(own)
    scores, own = scores[scored], own[scored]
    logs = torch.stack([own / t - (scores / t).logsumexp(dim=1) for t in by])
    least = torch.full_like(logs, math.log(SMOOTHING / scores.shape[1]))
    return -torch.logaddexp(logs + math.log1p(-SMOOTHING), least), scored


def confidence_edges() -> Tensor:
    """The upper edges of the `CONFIDENCE_BINS` bins of confidences, float64.

    Bins become narrow near 1, where the confidences of a good head lie.
    """
    wide = torch.arange(1, 32, dtype=torch.float64) / 32
    narrow = 1 - 2.0 ** -(5 + torch.arange(1, 34, dtype=torch.float64) / 2)
    return torch.cat([wide, narrow, torch.ones(1, dtype=torch.float64)])


def left_out_confidences(score: LeftOut, rows: Rows, temperature: float) -> Tensor:
    """The number of rows whose largest probability lies in each bin: int64.

    `score` must have one candidate. If no class is left without a row, the row counts
    in the lowest bin.
    """
    counts = torch.zeros(CONFIDENCE_BINS, dtype=torch.int64)
    edges = confidence_edges()
    for start in range(0, len(rows), _CHUNK_ROWS):
        (scores,) = score(rows.part(slice(start, start + _CHUNK_ROWS)))
        largest = Model.probabilities(scores / temperature).amax(dim=1).nan_to_num(0.0)
        place = torch.bucketize(largest.double(), edges[:-1])
        counts += torch.bincount(place, minlength=CONFIDENCE_BINS)
    return counts


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
