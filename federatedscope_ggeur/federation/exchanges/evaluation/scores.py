"""A head's scores, as counts that can be added, and FederatedScope's metrics.

The message with a client's scores.

Measures how well a head's probabilities agree with its hits, in counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from federatedscope_ggeur.errors import GGEURError, setting
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.schema import SPLITS, MessageSchema
from federatedscope_ggeur.machine import exact
from federatedscope_ggeur.models import CPU, Model
from federatedscope_ggeur.reporting import (
    AbsentClasses,
    Probabilities,
    ProbabilityScores,
)

#: Bins of equal width for the largest probability of a row.
BINS = 15
#: Sums for calibration are sent as whole multiples of 1/64, which add up exactly.
_UNITS = 64
_LARGEST = 2.0**50


@dataclass(frozen=True, eq=False)
class Reliability:
    """Counts over some rows: hits and confidences by bin, Brier scores, log-losses.

    Attributes
    ----------
    bins : Tensor of shape (3, BINS), int64
        For each bin: the rows whose largest probability lies in the bin, how many of
        them are classified correctly, and the sum of these probabilities in 1/64.
    sums : Tensor of shape (2,), int64
        The sums of Brier scores and log-losses, in 1/64.
    """

    bins: Tensor
    sums: Tensor

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor) -> Reliability:
        """Count over rows with logits [n, C], float64, and labels [n]."""
        shares = Model.probabilities(logits)
        largest, likeliest = shares.max(dim=1)
        place = (largest * BINS).ceil().long().clamp(1, BINS) - 1
        rows = torch.bincount(place, minlength=BINS)
        hits = torch.bincount(place[likeliest == labels], minlength=BINS)
        sure = torch.zeros(BINS, dtype=torch.float64).index_add(0, place, largest)
        errors = shares - F.one_hot(labels, logits.shape[1])
        loss = F.nll_loss(shares.log(), labels, reduction="sum")
        sums = torch.stack([errors.square().sum(), loss.clamp(max=_LARGEST)])
        bins = torch.stack([rows, hits, _rounded(sure)])
        return cls(bins, _rounded(sums))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Reliability):
            return NotImplemented
        return self.bins.equal(other.bins) and self.sums.equal(other.sums)

    def __add__(self, other: Reliability) -> Reliability:
        return Reliability(self.bins + other.bins, self.sums + other.sums)

    @property
    def rows(self) -> int:
        """The number of counted rows."""
        return int(self.bins[0].sum())

    @property
    def hits(self) -> int:
        """The number of these rows that are classified correctly."""
        return int(self.bins[1].sum())

    def scores(self) -> ProbabilityScores | None:
        """Expected calibration error, log-loss and Brier score; None without rows.

        The calibration error is the mean, over rows, of the distance between the
        accuracy of a row's bin and the mean confidence of the bin (Guo et al., "On
        calibration of modern neural networks", 2017).
        """
        if not self.rows:
            return None
        _, hits, sure = self.bins.double()
        apart = (hits - sure / _UNITS).abs().sum()
        brier, loss = (self.sums.double() / _UNITS / self.rows).tolist()
        return ProbabilityScores(float(apart / self.rows), loss, brier)


def _rounded(sums: Tensor) -> Tensor:
    return (sums * _UNITS).round().long()


#: FederatedScope's metrics, and whether a larger one is better.
METRICS = {
    "acc": True,
    "correct": True,
    "loss": False,
    "avg_loss": False,
    "total": False,
}


@dataclass(frozen=True)
class EarlyStopSettings:
    """FederatedScope's rule of early stopping (``EarlyStopper``).

    Attributes
    ----------
    patience : int
        The run ends after this many evaluations without improvement; 0 means never.
    delta : float
        The least improvement of the metric that counts.
    mode : {"best", "mean"}
        Whether a value is compared with the best value so far, or with the mean of the
        `patience` values before.
    """

    patience: int = 0
    delta: float = 0.0
    mode: str = "best"

    def stops_after(self, values: Sequence[float], larger_is_better: bool) -> bool:
        """Whether a run ends after the last of its metric's `values`.

        In the mode "best", a value that improves the best one by at least `delta`
        becomes the best, and the count starts again. All other values are counted. NaN
        also starts the count again, and so does an equal value if `delta` is 0.
        """
        sign = 1 if larger_is_better else -1

        def falls_short(value: float, of: float) -> bool:
            return sign * value < sign * of + self.delta

        if self.patience == 0 or not values:
            return False
        if self.mode == "mean":
            before = values[-self.patience - 1 : -1]
            enough = len(values) > self.patience
            return enough and falls_short(values[-1], float(np.mean(before)))
        best, count = values[0], 0
        for value in values[1:]:
            if falls_short(value, best):
                count += 1
            else:
                best, count = value, 0
        return count >= self.patience


@dataclass(frozen=True)
class EvaluationSettings:
    """The settings of scoring, and of decisions by scores.

    Attributes
    ----------
    splits : tuple of str
        The splits on which clients score a head; some of `SPLITS`.
    key : str
        The metric that decides which round is best: ``<split>_<metric>``.
    average : {"weighted_avg", "avg"}
        How clients' metrics are averaged: weighted by rows, or with equal weights.
    early_stop : EarlyStopSettings
    """

    splits: tuple[str, ...] = ("test",)
    key: str = "val_loss"
    average: str = "weighted_avg"
    early_stop: EarlyStopSettings = EarlyStopSettings()

    @property
    def validation_key(self) -> str:
        """The metric of `key` on validation rows, which alone decide choices."""
        return f"val_{self.key.partition('_')[2]}"


@dataclass(frozen=True)
class Score:
    """The hits on some rows, the number of rows, and the sum of their cross-entropies.

    `reliability` describes the probabilities, first as they are, then as they were
    before calibration. It is empty if nobody asked for it. `of_sent` describes
    them, as they are, without the rows of classes that nobody sent; None if nobody told
    such rows apart.
    """

    correct: int = 0
    total: int = 0
    loss_sum: float = 0.0
    reliability: tuple[Reliability, ...] = ()
    of_sent: Reliability | None = None

    def __add__(self, other: Score) -> Score:
        both = zip(self.reliability, other.reliability)
        one = self.reliability or other.reliability
        sent = None
        if self.of_sent is not None or other.of_sent is not None:
            first, *more = self._told_of_sent + other._told_of_sent
            sent = sum(more, first)
        return Score(
            self.correct + other.correct,
            self.total + other.total,
            self.loss_sum + other.loss_sum,
            tuple(a + b for a, b in both) or one,
            sent,
        )

    @property
    def _told_of_sent(self) -> tuple[Reliability, ...]:
        return self.reliability[:1] if self.of_sent is None else (self.of_sent,)

    def told(self, least: int) -> Score:
        """The score that a client reports.

        It tells rows of classes that nobody sent apart only if there are at least
        `least` of them, and as many others.
        """
        sent = 0 if self.of_sent is None else self.of_sent.rows
        if min(sent, self.total - sent) >= least:
            return self
        return replace(self, of_sent=None)

    @property
    def probabilities(self) -> Probabilities | None:
        """How well probabilities agree with hits; None if this was not measured."""
        after, before, *_ = [r.scores() for r in self.reliability] + [None, None]
        return None if after is None else Probabilities(after, before)

    def absent(self, classes: int) -> AbsentClasses | None:
        """The scores without rows of `classes` classes that nobody sent.

        None if there are no such classes, or no scored probabilities.
        """
        if not classes or not self.reliability:
            return None
        (others,) = self._told_of_sent
        rows, hits = self.total - others.rows, others.hits
        return AbsentClasses(
            classes,
            rows,
            (self.correct - hits) / rows if rows else None,
            hits / others.rows if others.rows else None,
            others.scores(),
        )

    @property
    def accuracy(self) -> float | None:
        """The share of rows classified correctly; None without rows."""
        return self.correct / self.total if self.total else None

    @property
    def mean_loss(self) -> float | None:
        """The mean cross-entropy; None without rows."""
        return self.loss_sum / self.total if self.total else None

    def metrics(self, split: str) -> dict[str, float]:
        """The `METRICS` under FederatedScope's names, such as ``"val_acc"``."""
        total = max(self.total, 1)
        return {
            f"{split}_acc": self.correct / total,
            f"{split}_correct": self.correct,
            f"{split}_loss": self.loss_sum,
            f"{split}_avg_loss": self.loss_sum / total,
            f"{split}_total": self.total,
        }


def average_metrics(
    scores: Iterable[Mapping[str, Score]], average: str
) -> dict[str, float]:
    """Average clients' metrics as FederatedScope's ``Results_<average>``.

    Parameters
    ----------
    scores : iterable of mapping from split to Score
        The scores of each client. A split in which a client has no rows is ignored.
    average : {"weighted_avg", "avg"}
        Weighted by rows of the split, or with equal weights. Counts are never weighted.
    """
    held: dict[str, list[Score]] = {}
    for own in scores:
        for split, score in own.items():
            if score.total:
                held.setdefault(split, []).append(score)
    averaged = {}
    for split, scored in held.items():
        rows = np.array([float(score.total) for score in scored])
        metrics = [score.metrics(split) for score in scored]
        for name in metrics[0]:
            values = np.array([float(own[name]) for own in metrics])
            is_count = name in (f"{split}_total", f"{split}_correct")
            if average == "weighted_avg" and not is_count:
                averaged[name] = float(np.sum(values * rows) / np.sum(rows))
            else:
                averaged[name] = float(np.mean(values))
    return averaged


def evaluate(
    model: Model,
    params: Tensor,
    features: Tensor,
    labels: Tensor,
    device: torch.device = CPU,
    remedy: str = "",
    temperature: float | None = None,
    absent: Sequence[int] = (),
) -> Score:
    """Score a model with weights `params` [P + Q] on rows [n, D] with labels [n].

    Rows are moved to `device` in chunks. `temperature` is the number by which the
    logits have been divided. If it is given, the probabilities are scored, too, also
    without the rows of the classes `absent`.

    Raises
    ------
    GGEURError
        The weights are so large that the loss is NaN or infinite. The message ends with
        `remedy`; by default it says to lower the rate.
    """
    frozen = model.at(params).to(device)
    return score_of(frozen, features, labels, device, remedy, temperature, absent)


def score_of(
    frozen: Model,
    features: Tensor,
    labels: Tensor,
    device: torch.device = CPU,
    remedy: str = "",
    temperature: float | None = None,
    absent: Sequence[int] = (),
) -> Score:
    """Score a model like `evaluate`, if it is in evaluation mode and on `device`."""
    score = Score()
    with torch.inference_mode(), exact(device, frozen.precision == "tf32"):
        rows = frozen.chunk_rows
        for x, y in zip(features.split(rows), labels.split(rows)):
            x, y = x.to(device), y.to(device)
            logits = frozen(frozen.prepare(x)).double()
            correct = int((logits.argmax(dim=1) == y).sum())
            loss = float(F.cross_entropy(logits, y, reduction="sum"))
            reliability = _reliability(frozen, logits, y, temperature)
            of_sent = None
            if reliability and len(absent):
                kept = ~torch.isin(y, torch.tensor(absent, device=device))
                of_sent = Reliability.of(logits[kept].cpu(), y[kept].cpu())
            score += Score(correct, len(y), loss, reliability, of_sent)
    if not math.isfinite(score.loss_sum):
        remedy = remedy or f"lower {setting('optimizer.lr')}"
        raise GGEURError(f"the loss is {score.loss_sum}: training diverged; {remedy}")
    return score


def _reliability(
    model: Model, logits: Tensor, labels: Tensor, temperature: float | None
) -> tuple[Reliability, ...]:
    if temperature is None:
        return ()
    before, labels = model.uncalibrated(logits, temperature), labels.cpu()
    kinds = (logits,) if before is None else (logits, before)
    return tuple(Reliability.of(kind.cpu(), labels) for kind in kinds)


_FIELDS = ("correct", "total", "loss_sum")
#: Names of `Score.reliability` and `Score.of_sent` in a message.
_PLACES, _OF_SENT = ("0", "1"), "of_sent"


class ScoreReport(wire.Payload, kind="score"):
    """A client's scores. They are counts, so that the server can add them by domain.

    Attributes
    ----------
    client, round_number : int
    scores : mapping from split ("train", "val" or "test") to Score
    """

    client: int
    round_number: int
    scores: Mapping[str, Score]

    def write(self) -> wire.Content:
        numbers = {
            "client": self.client,
            "round_number": self.round_number,
            "splits": list(self.scores),
        }
        tensors = {}
        for split, score in self.scores.items():
            numbers.update({f"{split}_{k}": getattr(score, k) for k in _FIELDS})
            described = {str(i): one for i, one in enumerate(score.reliability)}
            if score.of_sent is not None:
                described[_OF_SENT] = score.of_sent
            for name, one in described.items():
                tensors[f"{split}.{name}.bins"] = one.bins
                tensors[f"{split}.{name}.sums"] = one.sums
        return numbers, tensors

    @classmethod
    def read(cls, message: wire.Message, schema: MessageSchema) -> ScoreReport:
        splits = message.texts("splits")
        if not set(splits) <= set(SPLITS):
            raise message.refuse(
                "splits", f"expected some of {SPLITS}, got {splits!r:.80}"
            )
        scores = {}
        for split in splits:
            right, rows, loss = (f"{split}_{name}" for name in _FIELDS)
            total = message.integer(rows)
            reliability = [
                _read_reliability(message, f"{split}.{i}", total) for i in _PLACES
            ]
            score = Score(
                message.integer(right),
                total,
                message.number(loss),
                tuple(one for one in reliability if one is not None),
                _read_reliability(message, f"{split}.{_OF_SENT}", total, at_most=True),
            )
            if score.of_sent is not None and not score.reliability:
                raise message.refuse(
                    f"{split}.{_OF_SENT}", "the probabilities of all rows are missing"
                )
            if score.correct > score.total:
                raise message.refuse(
                    right,
                    f"{score.correct} hits on {score.total} rows; hits cannot exceed "
                    "rows",
                )
            scores[split] = score
        return cls(message.client(), message.integer("round_number"), scores)


def _read_reliability(
    message: wire.Message, name: str, rows: int, at_most: bool = False
) -> Reliability | None:
    if not message.has(f"{name}.bins"):
        return None
    bins = message.tensor(f"{name}.bins", torch.int64, (3, BINS), (0, math.inf))
    sums = message.tensor(f"{name}.sums", torch.int64, (2,), (0, math.inf))
    counted = int(bins[0].sum())
    fits = counted <= rows if at_most else counted == rows
    if not fits or (bins[1] > bins[0]).any():
        problem = f"the bins must add up to the {rows} rows of the split"
        raise message.refuse(f"{name}.bins", problem)
    return Reliability(bins, sums)
