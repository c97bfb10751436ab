"""A head's scores, as counts that can be added, and FederatedScope's metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from federatedscope_ggeur.errors import GGEURError, setting
from federatedscope_ggeur.federation.arithmetic import exact
from federatedscope_ggeur.models import CPU, Model
from federatedscope_ggeur.reporting import AbsentClasses, Probabilities

from .probabilities import Reliability

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
    before the temperature. It is empty if nobody asked for it. `of_sent` describes
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


def scores_by_domain(
    scores: Mapping[int, Score], domains: Mapping[int, str]
) -> dict[str, Score]:
    """Add up clients' scores over each domain, in client order.

    A domain without scores gets a score of no rows.
    """
    found = {domain: Score() for domain in dict.fromkeys(domains.values())}
    for k in sorted(scores.keys() & domains.keys()):
        found[domains[k]] += scores[k]
    return found


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
    for split, found in held.items():
        rows = np.array([float(score.total) for score in found])
        metrics = [score.metrics(split) for score in found]
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
            reliability = _reliability(logits, y, temperature)
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
    logits: Tensor, labels: Tensor, temperature: float | None
) -> tuple[Reliability, ...]:
    if temperature is None:
        return ()
    kinds = (logits,) if temperature == 1.0 else (logits, logits * temperature)
    labels = labels.cpu()
    return tuple(Reliability.of(kind.cpu(), labels) for kind in kinds)
