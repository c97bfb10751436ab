"""`evaluate`: scores of a head on test rows, as counts that can be added."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from federatedscope_ggeur.errors import GGEURError, setting
from federatedscope_ggeur.models import Model

_CHUNK_ROWS = 8192


@dataclass(frozen=True)
class Score:
    """Rows classified rightly, all rows, and the sum of their cross-entropies."""

    correct: int = 0
    total: int = 0
    loss_sum: float = 0.0

    def __add__(self, other: Score) -> Score:
        return Score(
            self.correct + other.correct,
            self.total + other.total,
            self.loss_sum + other.loss_sum,
        )

    @property
    def accuracy(self) -> float | None:
        """Fraction of rows classified rightly; None without rows."""
        return self.correct / self.total if self.total else None


def evaluate(
    model: Model,
    params: Tensor,
    features: Tensor,
    labels: Tensor,
    remedy: str = "",
) -> Score:
    """Score of a head with weights `params` [P] on features [n, D] and labels [n].

    Raises
    ------
    GGEURError
        The weights are so large that the loss is NaN or infinite; it ends with the
        `remedy`, by default the rate to lower.
    """
    frozen = model.at(params)
    score = Score()
    with torch.inference_mode():
        for x, y in zip(features.split(_CHUNK_ROWS), labels.split(_CHUNK_ROWS)):
            logits = frozen(x).double()
            correct = int((logits.argmax(dim=1) == y).sum())
            loss = float(F.cross_entropy(logits, y, reduction="sum"))
            score += Score(correct, len(y), loss)
    if not math.isfinite(score.loss_sum):
        remedy = remedy or f"lower {setting('optimizer.lr')}"
        raise GGEURError(
            f"the test loss is {score.loss_sum}: training diverged; {remedy}"
        )
    return score
