"""A10 and A11 on a release under differential privacy. They need that extra."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.extras.differential_privacy.noisy_release import (
    ROW_BITS,
    NoisyStatistics,
    cut_rows,
    unit_rows,
)

from .base import (
    LYING,
    MEANS,
    RECOVERED,
    AttackResult,
    Clock,
    Report,
    Transcript,
    Truth,
    cosine,
)

#: A mean over more rows of others reveals no single row.
_FEW = 4
_WHO = "everyone who sees the release"


def a10_of_release(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """A10, a matched filter: score a row by its fit to the noisy sums of the release.

    These are the sum of its class and the second moment.
    """
    release = seen.noisy
    assert release is not None, "there is no release"
    members, others = [np.zeros(0)], [np.zeros(0)]
    for c in release.classes:
        inside, outside = truth.of_class(c)
        if len(inside) and len(outside) and not clock.is_over:
            members.append(_fit(release, c, inside))
            others.append(_fit(release, c, outside))
    scores = np.concatenate(members), np.concatenate(others)
    note = "a matched filter on the release"
    return Report("A10", _WHO, "membership").membership(*scores, note=note)


def a11_of_release(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """A11, by server and one client: subtract the client's rows from the release.

    Lying gains them nothing, because they know the contribution of an invented row.
    """
    release = seen.noisy
    assert release is not None, "there is no release"
    least = {k: truth.few_of_others(k, _FEW + 1) for k in truth.clients}
    k = max(least, key=lambda k: (len(least[k]), -k))
    report = Report("A11", f"the server and client {k}", adversary=LYING)
    if not least[k]:
        why = f"of every class the other clients have no row or more than {_FEW} rows"
        return report.nothing(why)
    own = _sums(release, *truth.clients[k])
    rest = [(x, y) for j, (x, y) in truth.clients.items() if j != k]
    there = sum((_sums(release, *held) for held in rest), torch.zeros_like(own))
    guesses = (release.sums - own)[least[k]]
    near = torch.diagonal(cosine(guesses, there[least[k]]))
    return report.counted(
        MEANS,
        int((near > RECOVERED).sum()),
        len(near),
        f"median cosine {float(near.median()):.2f}, largest {float(near.max()):.2f}; "
        "the guesses contain the client's own noise",
    )


def _cut(release: NoisyStatistics, features: Tensor) -> Tensor:
    """Rows [n, D] minus the release's centre, cut as in the release."""
    rows = cut_rows(unit_rows(features), release.centre.numpy())
    return torch.from_numpy(rows.astype(np.float64) / 2**ROW_BITS)


def _sums(release: NoisyStatistics, features: Tensor, labels: Tensor) -> Tensor:
    """The exact sums [C, D] of the cut rows of each class."""
    sums = torch.zeros_like(release.sums)
    return sums.index_add_(0, labels, _cut(release, features))


def _fit(release: NoisyStatistics, c: int, rows: Tensor) -> np.ndarray:
    """The part of the log-likelihood ratio that depends on the release: [n]."""
    cut = _cut(release, rows)
    fit = cut @ release.sums[c] / release.noise["sums"] ** 2
    if release.square is not None:
        turned = (cut @ release.square * cut).sum(dim=1)
        fit += turned / release.noise["square"] ** 2
    return fit.numpy()
