"""A11: one client that lies in the secure sums.

The min-count threshold applies to the sum, and each client itself reports that it owns
nearly all rows of a class. A liar claims rows that it does not have, and denies that it
owns nearly all rows. Then the server sums any class and sends its mean. The liar
subtracts its claim and gets the mean of the others' rows. If the others have one row,
this mean is that row. If the server sends only a head, the liar also claims very many
rows of one class, ``+- r e_i`` along every axis. These rows outweigh all others, so the
liar nearly knows the covariance behind the head, and computes the means from both.
Masks hide the lie. Signed keys do not help, because the liar is a member.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .base import (
    LYING,
    MEANS,
    AttackResult,
    Claim,
    Clock,
    Report,
    Transcript,
    Truth,
    has_secure_sums,
)
from .subtractions import Owner, by_covariance, by_means

if TYPE_CHECKING:  # the extra may not be there
    from federatedscope_ggeur.extras.secure_sums.settings import SumSettings


def a_claim(truth: Truth, settings: SumSettings) -> Claim | None:
    """The best claim of invented rows, for the client that gains most by lying.

    None if the other clients have enough rows of every class.
    """
    least = settings.min_samples
    gains = {k: truth.few_of_others(k, least) for k in truth.clients}
    liar = max(gains, key=lambda k: (len(gains[k]), -k))
    if not gains[liar]:
        return None
    rows = torch.zeros(truth.num_classes, dtype=torch.int64)
    rows[gains[liar]] = least
    largest = truth.totals.clone()
    largest[gains[liar]] = 0
    if not int(largest.max()):  # the liar can learn something in every class
        return Claim(liar, rows)
    # Claim nearly as many rows as the limit allows, to outweigh the others' rows.
    left = settings.max_rows - int(truth.totals.sum() + rows.sum())
    pairs = max(left * 9 // 10, 0) // (2 * settings.dim)
    known = int(largest.argmax())
    rows[known] = 2 * pairs * settings.dim
    return Claim(liar, rows, known, 2 * pairs * settings.radius**2)


def spoken_of(claim: Claim, labels: Tensor) -> Tensor:
    """The indices of the rows that the liar reports: int64 [m]; `labels` are [n].

    It reports no real rows of classes with invented rows, except in the class that it
    fills with them.
    """
    made_up = claim.rows > 0
    if claim.known is not None:
        made_up[claim.known] = False
    return torch.nonzero(~made_up[labels]).flatten()


def a11(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """A11, by one lying client: subtract the invented rows from class means.

    The means are those that the server sent, or are computed from the head.
    """
    if seen.noisy is not None:
        from .released import a11_of_release  # for which the extra is needed

        return a11_of_release(seen, truth, clock)
    report = Report("A11", "one client", adversary=LYING)
    if not has_secure_sums(seen.role.demands):
        return report.untried("the audit tries a lying client only with secure sums")
    if seen.lied is None:
        return report.nothing("the other clients hold enough rows of every class")
    claim, lied = seen.lied.claim, seen.lied.seen
    report = replace(report, observer=f"client {claim.liar}")
    few = len(truth.few_of_others(claim.liar, seen.role.min_samples))
    if lied is None:
        return report.counted(MEANS, 0, few, f"refused: {seen.lied.refusal}")
    x, y = truth.clients[claim.liar]
    said = spoken_of(claim, y)
    clients = {**truth.clients, claim.liar: (x[said], y[said])}
    owner = Owner(lied, replace(truth, clients=clients), claim.liar)
    for c in torch.nonzero(claim.rows).flatten().tolist():
        scatter = claim.scatter if c == claim.known else 0.0
        owner.claim(c, int(claim.rows[c]), scatter)
    means = {**by_covariance(lied, owner), **by_means(lied, owner)}
    if not means.keys() & set(owner.few):
        why = "the server sent neither class means nor a head made from them"
        return report.nothing(why)
    note = f"it claims {int(claim.rows.sum())} rows that nobody has"
    return report.counted(MEANS, owner.known(means), few, note)
