"""A4 and A5: rows and classes, from a client's first update of the head."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.audit.base import (
    RECOVERED,
    Clock,
    Finding,
    Transcript,
    Truth,
    Update,
    cosine,
    nothing,
    recovered,
)
from federatedscope_ggeur.audit.scores import auc


def a4(seen: Transcript, truth: Truth, clock: Clock) -> Iterator[Finding]:
    """A4, server: the weights of a class of one row move along that row, those of
    absent classes against what all rows have in common."""
    if not seen.updates:
        yield nothing("A4", "server", "rows", "no linear head is trained")
        return
    found = tried = 0
    for k, update in seen.updates.items():
        counts = truth.counts(k)
        absent = torch.nonzero(counts == 0).flatten()
        for c in torch.nonzero(counts == 1).flatten().tolist():
            if clock.is_over:
                break
            row = seen.space.features(truth.rows(k, c))
            tried += 1
            found += int(float(cosine(guess(update, c, absent)[None], row)) > RECOVERED)
    if not tried:
        yield nothing("A4", "server", "rows", "no client has a class of one row")
        return
    yield recovered("A4", "server", found, tried, clock, "in the space trained in")


def guess(update: Update, c: int, absent: Tensor) -> Tensor:
    """Along the one row [D] of class `c`, up to its length."""
    common = torch.zeros_like(update.weight[c])
    if len(absent):
        common = update.weight[absent].mean(dim=0)
    return (update.weight[c] - common).double()


def a5(seen: Transcript, truth: Truth, clock: Clock) -> Iterator[Finding]:
    """A5, server: the biases of classes that a client holds rise."""
    if not seen.updates:
        yield nothing("A5", "server", "", "no linear head is trained")
        return
    held, absent = [], []
    for k, update in seen.updates.items():
        inside = truth.counts(k) > 0
        held += update.bias[inside].tolist()
        absent += update.bias[~inside].tolist()
    if not held or not absent:
        yield nothing("A5", "server", "", "every client holds every class")
        return
    value, low, high = auc(np.array(held), np.array(absent))
    yield Finding("A5", "server", "AUC of classes held", value, low, high)
