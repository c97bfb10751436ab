"""What attacks take and return, and how well they tell members from other rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.augmentation.keys import SetSettings
from federatedscope_ggeur.federation.exchanges.augmentation.messages import (
    Geometry,
    PrepareReply,
    Prototypes,
)
from federatedscope_ggeur.federation.exchanges.closed_form.client import (
    ClosedFormSettings,
)
from federatedscope_ggeur.federation.exchanges.closed_form.messages import (
    HitCounts,
    LeaveOneOut,
    LogLosses,
    LossQuery,
)
from federatedscope_ggeur.federation.exchanges.space import TotalsUpload
from federatedscope_ggeur.federation.settings import RoleSettings
from federatedscope_ggeur.geometry import Space, Statistics
from federatedscope_ggeur.models import ClosedForm

if TYPE_CHECKING:
    from federatedscope_ggeur.extras.differential_privacy.noisy_release import (
        NoisyStatistics,
    )


#: A row is recovered if its cosine with a guess is above this.
RECOVERED = 0.99

#: The attackers. Curious: the server or one client follows the protocol, works alone,
#: and stores all messages that it sees. Lying: one client lies about its own rows.
CURIOUS, LYING = ADVERSARIES = ("curious", "lying")
#: What a lying client finds.
MEANS = "means of few rows of others known"


def has_secure_sums(demands: Demands) -> bool:
    """Whether clients mask their statistics. The extra for that may not be there."""
    return demands.chosen.get("secure_sums", "none") != "none"


@dataclass(frozen=True)
class HeadUpdate:
    """One client's change of the last layer of a head in a round: weights [C, D],
    biases [C].

    For an MLP D is the number of hidden units: it is a linear head on these.
    """

    weight: Tensor
    bias: Tensor


@dataclass
class Transcript:
    """The decoded messages of a run.

    Attributes
    ----------
    role : RoleSettings
    uploads : mapping from client to Statistics
        Each client's own statistics in round 0, which the server sees.
    totals : mapping from client to TotalsUpload
        Each client's mean and variances for the space, which the server sees.
    summed : Statistics or None
        The sums that the server gets from secure sums.
    counts : Tensor of shape (C,), or None
        The rows of the named classes over all clients, if all clients get them.
    geometry : Geometry or None
        The shapes that every client gets, in `space`.
    prototypes : mapping from client to Prototypes
        The prototypes that each client gets, in `space` or with counts.
    space : Space
    replies : mapping from client to PrepareReply
    trains : bool
        Whether clients train and send updates.
    updates : mapping from client to tuple of HeadUpdate
        Updates of the head in the first rounds, which the server gets.
    represent : callable (Tensor) -> Tensor, or None
        What the head's last layer takes in of rows in `space`, in the first round.
    head : tuple of Tensor or None
        Weights [C, D] and biases [C] of the one-shot head, which everyone gets.
    head_classes : list of int
        The classes from which the one-shot head was made.
    left_out : LeaveOneOut or None
        The message that asks clients for scores of left-out rows.
    hits : mapping from client to HitCounts
        The clients' answers to `left_out`, which the server sees.
    loss_query : LossQuery or None
        The message that asks clients for log-losses.
    log_losses : mapping from client to LogLosses
        The clients' answers to `loss_query`, which the server sees.
    domains : mapping from client to str
    lied : Lied or None
        The same run with one lying client, if the audit made such a run.
    noisy : NoisyStatistics or None
        The release under differential privacy, if there is one.
    unread : tuple of str
        What clients send in the clear that no attack reads: who asks, and what it is.
    """

    role: RoleSettings
    uploads: dict[int, Statistics] = field(default_factory=dict)
    totals: dict[int, TotalsUpload] = field(default_factory=dict)
    summed: Statistics | None = None
    counts: Tensor | None = None
    geometry: Geometry | None = None
    prototypes: dict[int, Prototypes] = field(default_factory=dict)
    space: Space = field(default_factory=lambda: Space.raw(1))
    replies: dict[int, PrepareReply] = field(default_factory=dict)
    trains: bool = False
    updates: dict[int, tuple[HeadUpdate, ...]] = field(default_factory=dict)
    represent: Callable[[Tensor], Tensor] | None = None
    head: tuple[Tensor, Tensor] | None = None
    head_classes: tuple[int, ...] = ()
    left_out: LeaveOneOut | None = None
    hits: dict[int, HitCounts] = field(default_factory=dict)
    loss_query: LossQuery | None = None
    log_losses: dict[int, LogLosses] = field(default_factory=dict)
    domains: dict[int, str] = field(default_factory=dict)
    lied: Lied | None = None
    noisy: NoisyStatistics | None = None
    unread: tuple[str, ...] = ()

    def represented(self, rows: Tensor) -> Tensor:
        """Rows in `space` as the head's last layer takes them in."""
        return rows if self.represent is None else self.represent(rows).detach()

    @property
    def sets(self) -> SetSettings:
        """The settings by which clients make their training sets."""
        return self.role.of(SetSettings)

    @property
    def class_scatters(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Each class, its scatter [D, D] and its mean, if clients got these to leave
        rows out."""
        if self.left_out is not None:
            parts = self.left_out.components.merged("class")
            if parts.class_scatters is not None:
                yield from zip(parts.classes, parts.class_scatters, parts.means)

    def class_ranks(self) -> dict[int, int]:
        """The rank of each class's covariance that clients got, unless it is full."""
        if self.geometry is not None and not self.geometry.pooled:
            shapes = self.geometry.shapes.items()
            return {c: shape.rank for c, shape in shapes if shape.rank < shape.dim}
        ranks = {}
        for c, scatter, _ in self.class_scatters:
            rank = int(torch.linalg.matrix_rank(scatter, rtol=1e-10, hermitian=True))
            if rank < len(scatter):
                ranks[c] = rank
        return ranks

    @property
    def form(self) -> ClosedForm | None:
        """The one-shot head, if there is one."""
        if not self.role.demands.closed_form:
            return None
        return self.role.of(ClosedFormSettings).form


@dataclass(frozen=True)
class Claim:
    """The rows that a lying client invents in its secure sums.

    Attributes
    ----------
    liar : int
    rows : Tensor of shape (C,), int64
        The number of invented rows of each class. All invented rows add up to the zero
        vector.
    known : int or None
        The class of most invented rows; their scatter is ``scatter I``. Invented rows
        of other classes are zero vectors.
    scatter : float
    """

    liar: int
    rows: Tensor
    known: int | None = None
    scatter: float = 0.0


@dataclass(frozen=True)
class Lied:
    """A second round 0, in which one client lies in the secure sums.

    Attributes
    ----------
    claim : Claim
    seen : Transcript or None
        The messages; None if clients refused the run.
    refusal : str
        The client that refused the run, and its reason.
    """

    claim: Claim
    seen: Transcript | None
    refusal: str = ""


@dataclass(frozen=True)
class Truth:
    """The true rows, by which attacks are scored.

    Attributes
    ----------
    clients : mapping from client to (features [n, D], labels [n])
        The rows on which clients train.
    others : tuple of features [m, D] and labels [m]
        Rows of the same data on which nobody trains.
    num_classes : int
    seed : int
        The seed of random draws.
    """

    clients: Mapping[int, tuple[Tensor, Tensor]]
    others: tuple[Tensor, Tensor]
    num_classes: int
    seed: int = 0

    def counts(self, client: int) -> Tensor:
        return torch.bincount(self.clients[client][1], minlength=self.num_classes)

    @property
    def totals(self) -> Tensor:
        zero = torch.zeros(self.num_classes, dtype=torch.int64)
        return sum((self.counts(k) for k in self.clients), zero)

    def few_of_others(self, client: int, least: int) -> list[int]:
        """The classes of which the other clients have rows, but fewer than `least`."""
        others = self.totals - self.counts(client)
        return torch.nonzero((others > 0) & (others < least)).flatten().tolist()

    def rows(self, client: int, c: int) -> Tensor:
        """The rows of class `c` of a client, float64."""
        x, y = self.clients[client]
        return x[y == c].double()

    def of_class(self, c: int, but: int | None = None) -> tuple[Tensor, Tensor]:
        """The members of class `c` over all clients, and its non-members; float64.

        Those of the client `but` are left out.
        """
        x, y = self.others
        inside = [self.rows(k, c) for k in self.clients if k != but]
        return torch.cat([x[:0].double(), *inside]), x[y == c].double()


@dataclass(frozen=True)
class AttackResult:
    """The result of an attack.

    Attributes
    ----------
    attack, observer : str
    figure : str
        The name of the quantity that `value` measures.
    value : float or None
        None if nothing was attacked.
    low, high : float or None
        The 95% interval of `value`, if `value` is an estimate.
    chance : float or None
        The average `value` of guesses without any messages.
    limit : float or None
        The run fails at `level` if `value` is above this limit.
    level : {"rows", "membership", "dp", ""}
        The level of the verdict; "" reports the value without a verdict.
    passed : bool or None
        None if nothing was attacked, if chance alone could exceed the limit, or if
        there is no limit.
    tried : int or None
        The number of rows, classes or numbers that were attacked. None means that there
        was nothing to attack. 0 means that the attack was possible but was not tried.
    adversary : {"curious", "lying"}
    note : str
    """

    attack: str
    observer: str
    figure: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    chance: float | None = None
    limit: float | None = None
    level: str = ""
    passed: bool | None = None
    tried: int | None = None
    adversary: str = CURIOUS
    note: str = ""


class Clock:
    """Measures the time that an attack has left."""

    def __init__(self, seconds: float):
        self._until, self.seconds = time.monotonic() + seconds, seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._until


Attack = Callable[[Transcript, Truth, Clock], list[AttackResult]]


def cosine(one: Tensor, other: Tensor) -> Tensor:
    """The cosines [n, m] of the rows of `one` [n, D] with those of `other` [m, D]."""
    unit = [
        rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-300) for rows in (one, other)
    ]
    return unit[0] @ unit[1].T


def matched(guesses: Tensor, rows: Tensor) -> int:
    """Count how many of `rows` [m, D] the guesses [n, D] recover."""
    if not len(guesses) or not len(rows):
        return 0
    return int((cosine(guesses, rows).max(dim=0).values > RECOVERED).sum())


def drawn_classes(
    sizes: Mapping[tuple[int, int], int], seed: int, most: int = 20
) -> list[tuple[int, int]]:
    """Choose at most `most` (client, class) pairs, the smallest first.

    `sizes` has the number of rows of each pair. The seed decides between equal sizes.
    """
    rng = np.random.default_rng(seed)
    order = sorted(sizes, key=lambda pair: (sizes[pair], rng.random()))
    return order[:most]


#: Limits of the AUC, and of the hit rate at AT false alarms. A run fails at level
#: membership if an attack's lower bound is above its limit.
AUC_LIMIT, RATE_LIMIT, AT = 0.60, 0.05, 0.01
#: The number of membership attacks, over which the error of the bounds is shared.
_ATTACKS = 4


def auc(members: np.ndarray, others: np.ndarray) -> tuple[float, float, float]:
    """The AUC of members against other rows, with DeLong's 95% interval.

    The AUC is the probability that a member scores higher than another row; ties count
    half.

    Notes
    -----
    DeLong, DeLong, Clarke-Pearson 1988: the variance of the two placements.
    """
    m, n = len(members), len(others)
    both = stats.rankdata(np.concatenate([members, others]))
    above = (both[:m] - stats.rankdata(members)) / n
    below = 1 - (both[m:] - stats.rankdata(others)) / m
    value = float(above.mean())
    variance = np.var(above, ddof=1) / m if m > 1 else 0.0
    variance += np.var(below, ddof=1) / n if n > 1 else 0.0
    half = 1.96 * float(variance) ** 0.5
    return value, max(0.0, value - half), min(1.0, value + half)


def hit_rate(
    members: np.ndarray, others: np.ndarray, share: float, attacks: int
) -> tuple[float, float]:
    """The rate of members found at a rate `share` of false alarms, and a lower bound.

    The bound is Clopper and Pearson's, with error 0.05 over all `attacks` together.
    """
    limit = np.quantile(others, 1 - share, method="higher")
    hits, m = int((members > limit).sum()), len(members)
    low = stats.beta.ppf(0.05 / attacks, hits, m - hits + 1) if hits else 0.0
    return hits / m, float(low)


def more_than_chance(chances: Sequence[float]) -> int:
    """The smallest h for which guesses hit h or more times with probability <= 5%.

    Guess i of n hits with the probability `chances[i]`. The result is n + 1 if even n
    hits are likelier than that.

    Notes
    -----
    The distribution of the sum (Poisson binomial) is computed by convolution.
    """
    mass = np.ones(1)
    for p in chances:
        mass = np.convolve(mass, [1 - p, p])
    at_least = np.append(mass[::-1].cumsum()[::-1], 0.0)
    return int(np.argmax(at_least <= 0.05))


@dataclass(frozen=True)
class Report:
    """Makes the findings of one attack, each as a list of its own.

    Attributes
    ----------
    attack, observer : str
    level : str
        As in `AttackResult`, and so is `adversary`.
    adversary : {"curious", "lying"}
    """

    attack: str
    observer: str
    level: str = "rows"
    adversary: str = CURIOUS

    def of(self, figure: str, **more) -> list[AttackResult]:
        """The finding with these values of `AttackResult`."""
        named = self.attack, self.observer, figure
        about = {"level": self.level, "adversary": self.adversary}
        return [AttackResult(*named, **{**about, **more})]

    def nothing(self, why: str) -> list[AttackResult]:
        """The finding of an attack that had nothing to attack."""
        return self.of("", note=why)

    def untried(self, why: str = "the time ran out") -> list[AttackResult]:
        """The finding of an attack that was possible but was not tried."""
        return self.of("", tried=0, note=f"not tried: {why}")

    def counted(
        self, what: str, right: int, tried: int, note: str = ""
    ) -> list[AttackResult]:
        """The finding of an attack that guessed `right` of `tried` secrets.

        The run fails if one guess is right.
        """
        if not tried:
            return self.untried()
        verdict = {"limit": 0.0, "passed": not right, "tried": tried}
        return self.of(f"{what}, of {tried}", value=float(right), **verdict, note=note)

    def reidentified(
        self,
        what: str,
        ranks: Sequence[int],
        chances: Sequence[float],
        among: str,
        recovered: int | None = None,
        notes: Sequence[str] = (),
    ) -> list[AttackResult]:
        """The finding of how many classes were re-identified, compared with chance.

        A class is re-identified if a row of the client has rank 1. `among` names the
        ranked rows. `recovered` is the number of rows that an attack computed by
        itself.
        """
        hits, tried = ranks.count(1), len(ranks)
        least = more_than_chance(chances)
        told = least <= tried
        within = stats.binomtest(hits, tried).proportion_ci(method="exact")
        power = (
            f"{least} or more fail"
            if told
            else "too few known rows to distinguish the result from chance"
        )
        rank = f"median rank of its nearest row {np.median(ranks):g} of {among}"
        computed = "" if recovered is None else f"{recovered} rows recovered"
        return self.of(
            f"{what} re-identified, of {tried}",
            value=float(hits),
            low=within.low * tried,
            high=within.high * tried,
            chance=float(np.sum(chances)),
            limit=float(least - 1) if told else None,
            passed=not recovered and hits < least if told or recovered else None,
            tried=tried,
            note="; ".join(filter(None, [computed, rank, power, *notes])),
        )

    def membership(
        self, members: np.ndarray, others: np.ndarray, note: str = ""
    ) -> list[AttackResult]:
        """The finding of a membership attack from the scores of all rows."""
        if not len(members) or not len(others):
            return self.untried(
                "the attack had no members, no other rows to compare, or no time; set "
                "aside test rows by data.splits"
            )
        value, low, high = auc(members, others)
        rate, least = hit_rate(members, others, AT, _ATTACKS)
        said = f"{rate:.3f} of members at {AT:.0%} false ones ({least:.3f} at least)"
        power = f"about {AUC_LIMIT + value - low:.2f} or more fail" if low else ""
        return self.of(
            "AUC",
            value=value,
            low=low,
            high=high,
            chance=0.5,
            limit=AUC_LIMIT,
            passed=not (low > AUC_LIMIT or least > RATE_LIMIT),
            tried=len(members),
            note="; ".join(filter(None, [said, power, note])),
        )
