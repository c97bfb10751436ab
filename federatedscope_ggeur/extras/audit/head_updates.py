"""A4 and A5: find rows and classes from a client's first updates of the head."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .base import (
    AttackResult,
    Clock,
    HeadUpdate,
    Report,
    Transcript,
    Truth,
    auc,
    drawn_classes,
    matched,
)

#: The attack tries classes with at most this many rows, or fewer than the threshold.
_MOST_ROWS = 4
#: The most classes to try, over all clients.
_MOST_CLASSES = 400


def a4(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """A4, by the server: the weights of a class with few rows move along these rows.

    The attack finds, among all known rows, the row nearest to the direction in which
    the class's weights moved. The class is re-identified if this is one of the client's
    own rows. If the client has m of n known rows of a class, a random guess is right
    with probability m / n.

    Notes
    -----
    The attack adds up the updates of several rounds: GGEUR's noise around a row differs
    from batch to batch, but the row is the same. It subtracts two parts: the common
    movement of the weights of absent classes, and the movement along the class means
    that the server sent for step 2.
    """
    report = Report("A4", "server")
    if not seen.updates:
        return _without_updates(report, seen)
    known = _Known(seen, truth)
    most = max(_MOST_ROWS, seen.role.min_samples - 1)
    sizes = {
        (k, c): int(n)
        for k in seen.updates
        for c, n in enumerate(truth.counts(k).tolist())
        if 0 < n <= most
    }
    if not sizes:
        why = f"no client has a class of up to {most} rows"
        return report.nothing(why)
    recovered, ranks, chances = 0, [], []
    for k, c in drawn_classes(sizes, truth.seed, _MOST_CLASSES):
        if clock.is_over:
            break
        own = known.of_client(k, c)
        moved = guesses(seen.updates[k], c, torch.nonzero(truth.counts(k) == 0))
        recovered += matched(moved, known.features[own].double())
        ranks.append(known.rank(moved[-1], own, _sent(seen, k, c)))
        chances.append(sizes[k, c] / int((known.labels == c).sum()))
    if not ranks:
        return report.untried()
    few = len(ranks) < len(sizes)
    notes = [f"{len(ranks)} of {len(sizes)} classes tried"] if few else []
    what = f"classes of up to {most} rows"
    among = str(len(known.labels))
    return report.reidentified(what, ranks, chances, among, recovered, notes)


def guesses(updates: Sequence[HeadUpdate], c: int, absent: Tensor) -> Tensor:
    """Guess the direction of rows of class `c`: Tensor [rounds + 1, D].

    There is a guess for each round, and a last one for all rounds together.
    """
    each = []
    for update in updates:
        common = torch.zeros_like(update.weight[c])
        if len(absent):
            common = update.weight[absent.flatten()].mean(dim=0)
        each.append((update.weight[c] - common).double())
    return torch.stack([*each, torch.stack(each).sum(dim=0)])


class _Known:
    """Rows that the attack assumes the server knows, as the last layer gets them."""

    def __init__(self, seen: Transcript, truth: Truth):
        own = [(torch.full_like(y, k), x, y) for k, (x, y) in truth.clients.items()]
        nobody = torch.zeros_like(truth.others[1]), *truth.others
        self.owners, raw, self.labels = (
            torch.cat(parts) for parts in zip(*own, nobody)
        )
        self.features = seen.represented(seen.space.features(raw))
        self._centred = self.features - self.features.mean(dim=0)

    def of_client(self, k: int, c: int) -> Tensor:
        """A mask of the client's rows of class `c`."""
        return (self.owners == k) & (self.labels == c)

    def rank(self, guess: Tensor, own: Tensor, sent: Tensor) -> int:
        """The rank, from 1, of the `own` row nearest to `guess` [D] in angle.

        The attack first subtracts the components along `sent` [P, D].
        """
        guess, rows = guess.to(self._centred.dtype), self._centred
        if len(sent):
            basis, _ = torch.linalg.qr(sent.T.to(rows.dtype))
            guess = guess - basis @ (basis.T @ guess)
            rows = rows - (rows @ basis) @ basis.T
        scores = rows @ guess / rows.norm(dim=1).clamp(min=1e-12)
        best, others = scores[own].max(), scores[~own]
        ties = int((others == best).sum())
        return int((others > best).sum()) + ties // 2 + 1


def _sent(seen: Transcript, k: int, c: int) -> Tensor:
    """The prototypes [P, D] of class `c` that client `k` got, as the last layer gets
    them."""
    got = seen.prototypes.get(k)
    if got is None:
        return torch.zeros(0, 0)
    rows = got.prototypes[got.labels == c]
    return seen.represented(rows if got.counts is None else seen.space.features(rows))


def _without_updates(report: Report, seen: Transcript) -> list[AttackResult]:
    if seen.trains:
        return report.untried("the model is neither linear nor an MLP")
    return report.nothing("nothing is trained")


def a5(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """A5, by the server: biases rise for the classes that a client holds."""
    report = Report("A5", "server", "")
    if not seen.updates:
        return _without_updates(report, seen)
    held, absent = [], []
    for k, updates in seen.updates.items():
        inside = truth.counts(k) > 0
        held += updates[0].bias[inside].tolist()
        absent += updates[0].bias[~inside].tolist()
    if not held or not absent:
        return report.nothing("every client holds every class")
    value, low, high = auc(np.array(held), np.array(absent))
    within = {"low": low, "high": high, "chance": 0.5, "tried": len(held)}
    return report.of("AUC of held classes", value=value, **within)
