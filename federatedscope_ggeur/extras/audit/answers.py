"""A13: find rows of withheld classes by the scores of heads that clients report.

Runs all attacks on a run, and gives the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from federatedscope_ggeur.federation.exchanges.closed_form.messages import (
    LeaveOneOut,
    LossQuery,
)
from federatedscope_ggeur.models import ClosedForm
from federatedscope_ggeur.models.closed_forms import (
    LOSS_UNITS,
    ScoredRows,
    is_right,
    log_losses,
)

from .base import Attack, AttackResult, Clock, Report, Transcript, Truth
from .head_updates import a4, a5
from .known_rows import a1, a1b, a2, a3, a8, a10
from .liar import a11
from .subtractions import a9, s1, s2, s3, s4
from .told_numbers import a6, a7, a12

#: The standard deviations of reported counts, and of rounded numbers.
_EXACT, _ROUNDED = 0.01, 12**-0.5
#: If known rows miss a number by this much, unknown rows contribute to it.
_OFF = 0.75
#: The most sets of rows to try one by one; how often to compute the posterior again.
_MOST_SETS, _AGAIN = 10_000, 2
_CHUNK_ROWS = 512


class Numbers(NamedTuple):
    """The contribution of each row to the numbers that a client reports.

    Attributes
    ----------
    hits : Tensor of shape (n, candidates), float64
    losses : Tensor of shape (n, candidates x temperatures), float64
        The losses of those candidates that were asked for, in units of the rounding
        step, before rounding.
    """

    hits: Tensor
    losses: Tensor


def a13(seen: Transcript, truth: Truth, clock: Clock) -> list[AttackResult]:
    """A13, by the server: subtract known rows from hits and log-losses.

    The rest is due to withheld rows. The attack assumes that the server knows all
    training rows and as many other rows. The server also knows the rows behind the
    statistics (A2 finds them) and the number of a client's rows in each withheld class
    (A5 and A7 find it). The attack ranks the other known rows of each withheld class;
    rows that explain the numbers best come first (see `likely`). If the numbers need no
    withheld row, it draws the ranks at random.

    Notes
    -----
    The attack does not look for validation rows. If clients score them, they are part
    of the numbers and make the attack harder. Nor does it use log-losses on rows held
    out of training, which clients report after the last round; docs/privacy.md says
    what they tell.
    """
    report = Report("A13", "server")
    answered = sorted(set(seen.hits) | set(seen.log_losses))
    if not answered or seen.left_out is None or seen.form is None:
        return report.nothing("no client reports scores of heads on its rows")
    withheld = {
        k: truth.counts(k) * (seen.uploads[k].counts == 0)
        for k in answered
        if k in seen.uploads
    }
    if not any(counts.any() for counts in withheld.values()):
        return report.nothing("no client has a withheld class")
    known = _KnownContributions(seen, truth)
    rng = np.random.default_rng(truth.seed)
    ranks: list[int] = []
    chances: list[float] = []
    explained = asked = 0
    for k, counts in withheld.items():
        if clock.is_over:
            break
        rows = counts[known.labels] > 0
        left, of_rows, noise = known.unexplained(k, rows)
        classes, place = known.labels[rows].unique(return_inverse=True)
        scores = likely(of_rows, left, noise, place, counts[classes])
        asked, explained = asked + 1, explained + (not len(left))
        own = known.owners[rows] == k
        for c in range(len(classes)):
            here = place == c
            ranks.append(_rank(scores[here].numpy(), own[here].numpy(), rng))
            chances.append(int(own[here].sum()) / int(here.sum()))
    if not ranks:
        return report.untried()
    notes = []
    if explained:
        notes.append(f"the numbers of {explained} clients contain no withheld row")
    if asked < len(withheld):
        notes.append(f"{asked} of {len(withheld)} clients tried")
    if seen.role.demands.scales_trained:
        notes.append("answers after the last round were not attacked")
    what, among = "withheld classes", "the known rows of its class"
    return report.reidentified(what, ranks, chances, among, notes=notes)


def likely(
    rows: Tensor, total: Tensor, noise: Tensor, classes: Tensor, counts: Tensor
) -> Tensor:
    """The probability of each known row to be in the set of rows that gives `total`.

    Parameters
    ----------
    rows : Tensor of shape (n, m), float64
        The contribution of each row, if it is in the set.
    total : Tensor of shape (m,), float64
    noise : Tensor of shape (m,), float64
        The standard deviations of `total`.
    classes : Tensor of shape (n,), int64
        The class of each row, from 0.
    counts : Tensor of shape (C,), int64
        The number of rows of each class in the set.

    Returns
    -------
    Tensor of shape (n,), float64
        The probabilities. Since they are approximate, some may lie outside 0..1.

    Notes
    -----
    If there are only few possible sets of rows, the result is the posterior over all
    sets. Otherwise it is the mean of a Gaussian posterior. In the prior, each of the
    n_c known rows of class c has the mean p = counts_c / n_c and the variance p (1 -
    p), and the number of rows of a class is fixed. The set has few of many rows. So the
    computation is repeated with the prior mean 0, and with the square of the last
    result as the variance.
    """
    sizes = torch.bincount(classes, minlength=len(counts))
    sets = _all_sets(classes, sizes.tolist(), counts.tolist())
    if sets is not None:
        off = (total - rows[sets].sum(dim=1)) / noise
        weights = (-off.square().sum(dim=1) / 2).softmax(dim=0)
        of_rows = weights.repeat_interleave(len(sets[0]))
        return torch.zeros(len(rows)).double().index_add(0, sets.flatten(), of_rows)
    share = (counts / sizes.double())[classes]
    rows = torch.cat([rows, one_hot(classes, len(counts)).double()], dim=1)
    total = torch.cat([total, counts.double()])
    noise = torch.cat([noise, torch.full((len(counts),), 1e-4).double()])
    means = _posterior(rows, total, noise, share, (share * (1 - share)).sqrt())
    for _ in range(_AGAIN):
        spread = means.clamp(0, 1) + 1e-6
        means = _posterior(rows, total, noise, torch.zeros_like(share), spread)
    return means


def _all_sets(
    classes: Tensor, sizes: Sequence[int], counts: Sequence[int]
) -> Tensor | None:
    """All sets with the given number of rows of each class: shape (sets, rows).

    None if there are too many sets.
    """
    if math.prod(math.comb(n, k) for n, k in zip(sizes, counts)) > _MOST_SETS:
        return None
    sets = torch.zeros(1, 0, dtype=torch.int64)
    for c, count in enumerate(counts):
        more = torch.combinations(torch.nonzero(classes == c).flatten(), count)
        more = more.reshape(-1, count)
        each = sets.repeat_interleave(len(more), dim=0)
        sets = torch.cat([each, more.repeat(len(sets), 1)], dim=1)
    return sets


def _posterior(
    rows: Tensor, total: Tensor, noise: Tensor, mean: Tensor, spread: Tensor
) -> Tensor:
    """The posterior mean of the rows' weights [n], given the weighted sum of rows.

    The prior is Gaussian with the given `mean` and `spread`.
    """
    off = (total - mean @ rows) / noise
    # Ridge regression in the singular basis, because many numbers are nearly equal.
    by_number, size, by_row = torch.linalg.svd(
        (spread[:, None] * rows / noise).T, full_matrices=False
    )
    return mean + spread * ((by_number.T @ off * size / (size**2 + 1)) @ by_row)


def numbers_of(
    rows: ScoredRows, form: ClosedForm, left_out: LeaveOneOut, query: LossQuery | None
) -> Numbers:
    """Compute each row's contribution to all candidates' hits and to log-losses."""
    form = form.for_components(left_out.components)
    hits, losses = [], []
    for start in range(0, max(len(rows), 1), _CHUNK_ROWS):
        part = rows.part(slice(start, start + _CHUNK_ROWS))
        scores = left_out.scores(form)(part)
        hits.append(torch.stack([is_right(one, part.labels) for one in scores], dim=1))
        each = [torch.zeros(len(part), 0).double()]
        asked = [] if query is None else zip(query.candidates, query.temperatures)
        for candidate, by in asked:
            (one,) = left_out.scores(form, candidate)(part)
            of_scored, scored = log_losses(one, part.labels, by, query.floors)
            of_candidate = torch.zeros(len(part), len(of_scored)).double()
            of_candidate[scored] = LOSS_UNITS * of_scored.T
            each.append(of_candidate)
        losses.append(torch.cat(each, dim=1))
    return Numbers(torch.cat(hits).double(), torch.cat(losses).double())


class _KnownContributions:
    """Rows that the attack assumes the server knows, with their contributions.

    Rows behind statistics are not among them.
    """

    def __init__(self, seen: Transcript, truth: Truth):
        self._seen, self._truth = seen, truth
        assert seen.form is not None
        assert seen.left_out is not None
        parts = [(torch.zeros_like(truth.others[1]), *truth.others)]
        for k, (x, y) in truth.clients.items():
            free = ~self._is_sent(k)
            parts.append((torch.full_like(y, k)[free], x[free], y[free]))
        self.owners, features, self.labels = (torch.cat(part) for part in zip(*parts))
        self._numbers = self._of(features, self.labels, 0, 0, False)

    def unexplained(self, k: int, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The part of client k's numbers that its rows in statistics do not explain.

        Returns this part [m], the contributions [n, m] of the known `rows`, and
        standard deviations [m]. m is 0 if the rows in statistics explain all numbers.
        """
        x, y = self._truth.clients[k]
        sent, names = self._is_sent(k), self._seen.left_out.components.domain_names
        place = names.index(self._seen.domains[k])
        behind = self._of(x[sent], y[sent], k, place, True)
        told = []
        hits, losses = self._seen.hits.get(k), self._seen.log_losses.get(k)
        if hits is not None:
            told.append((hits.hits, behind.hits, self._numbers.hits, _EXACT))
        if losses is not None and losses.rows:
            of_known = self._numbers.losses
            told.append((losses.losses.flatten(), behind.losses, of_known, _ROUNDED))
        left = [torch.zeros(0).double()]
        of_rows, noise = [left[0].expand(int(rows.sum()), 0)], [left[0]]
        for numbers, explained, of_known, error in told:
            rest = numbers - explained.sum(dim=0)
            if (rest.abs() > _OFF).any():
                left.append(rest)
                of_rows.append(of_known[rows])
                noise.append(torch.full_like(rest, error))
        return torch.cat(left), torch.cat(of_rows, dim=1), torch.cat(noise)

    def _of(self, features, labels, k: int, domain: int, inside: bool) -> Numbers:
        where = torch.full((len(labels),), inside)
        rows = ScoredRows(features, labels, k, domain, where)
        seen = self._seen
        return numbers_of(rows, seen.form, seen.left_out, seen.loss_query)

    def _is_sent(self, k: int) -> Tensor:
        """A mask of the rows of client `k` that are behind its statistics."""
        labels = self._truth.clients[k][1]
        if k not in self._seen.uploads:
            return torch.zeros_like(labels).bool()
        return self._seen.uploads[k].counts[labels] > 0


def _rank(scores: np.ndarray, own: np.ndarray, rng: np.random.Generator) -> int:
    """The rank, from 1, of the best row among the client's `own` rows.

    Ties are broken at random.
    """
    order = np.lexsort((rng.random(len(scores)), -scores))
    return int(np.argmax(own[order])) + 1


#: The levels of an audit, the weakest first.
LEVELS = ("rows", "membership", "dp")
#: The attacks by name, in the order of docs/privacy.md.
ATTACKS: dict[str, Attack] = {
    **{"A1": a1, "A1b": a1b, "A2": a2, "A3": a3, "A4": a4, "A5": a5, "A6": a6},
    **{"A7": a7, "A8": a8, "A9": a9, "A10": a10, "A11": a11, "A12": a12},
    "A13": a13,
    **{"S1": s1, "S2": s2, "S3": s3, "S4": s4},
}


def audit_run(
    seen: Transcript,
    truth: Truth,
    seconds: float = 60.0,
    attacks: Iterable[str] = tuple(ATTACKS),
) -> list[AttackResult]:
    """Run each attack for at most `seconds`, and return the findings."""
    return [
        one for name in attacks for one in ATTACKS[name](seen, truth, Clock(seconds))
    ]


@dataclass(frozen=True)
class Verdict:
    """The verdict from all findings at one level, for one kind of adversary.

    Attributes
    ----------
    adversary : {"curious", "lying"}
    level : {"rows", "membership", "dp"}
    failed, passed, open, untried : tuple of str
        The names of attacks by result. Open attacks were tried, but had too few data to
        distinguish the result from chance. All other attacks had nothing to attack.
    """

    adversary: str
    level: str
    failed: tuple[str, ...]
    passed: tuple[str, ...]
    open: tuple[str, ...]
    untried: tuple[str, ...]

    @classmethod
    def of(
        cls, findings: Sequence[AttackResult], level: str, adversary: str
    ) -> Verdict:
        by: dict[str, dict[str, None]] = {}  # each attack once
        for one in findings:
            if (one.level, one.adversary) == (level, adversary):
                by.setdefault(_outcome(one), {})[one.attack] = None
        names = ("failed", "passed", "open", "untried")
        return cls(adversary, level, *(tuple(by.get(name, ())) for name in names))

    @property
    def outcome(self) -> str:
        """The verdict in a few words."""
        if self.failed:
            return "FAILED"
        if self.passed:
            return "passed"
        if self.open or self.untried:
            return "undecided"
        return "nothing to attack"


def _outcome(one: AttackResult) -> str:
    if one.passed is not None:
        return "passed" if one.passed else "failed"
    if one.tried is None:
        return "nothing"
    return "open" if one.tried else "untried"
