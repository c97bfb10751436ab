"""What an attack is given, and what it finds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.federation.exchanges.augmentation.messages import (
    Geometry,
    PrepareReply,
    Prototypes,
)
from federatedscope_ggeur.federation.exchanges.augmentation.settings import SetSettings
from federatedscope_ggeur.federation.exchanges.closed_form.exchange import (
    ClosedFormSettings,
)
from federatedscope_ggeur.federation.exchanges.closed_form.leave_one_out import (
    HitCounts,
    LeaveOneOut,
    LogLosses,
    LossQuery,
)
from federatedscope_ggeur.federation.settings import RoleSettings
from federatedscope_ggeur.federation.wire.schema import Statistics
from federatedscope_ggeur.geometry import Space
from federatedscope_ggeur.models import ClosedForm

#: Of a row and what an attack makes of it; above, it is recovered.
RECOVERED = 0.99

#: Who attacks. Curious: the server, or one client, keeps to the protocol and to itself,
#: and keeps all that it sees. Lying: one client says of its own rows what is not so.
CURIOUS, LYING = ADVERSARIES = ("curious", "lying")


@dataclass(frozen=True)
class Update:
    """One client's round: weights [C, D] and biases [C] of a linear head, after less
    before."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class Transcript:
    """What was said in a run, decoded as whoever got it decodes it.

    Attributes
    ----------
    role : RoleSettings
    uploads : mapping from client to Statistics
        What each client sent of its own in round 0, seen by the server.
    summed : Statistics or None
        What the server knows as secure sums.
    counts : Tensor of shape (C,), or None
        Rows of the named classes over all clients, where everyone is told.
    geometry : Geometry or None
        Seen by every client, in `space`.
    prototypes : mapping from client to Prototypes
        Seen by that client; in `space`, or with counts.
    space : Space
    replies : mapping from client to PrepareReply
    trains : bool
        Whether clients send updates of any model.
    updates : mapping from client to tuple of Update
        Of a linear head in the first rounds, in `space`, seen by the server.
    head : tuple of Tensor or None
        Weights [C, D] and biases [C] of the head in closed form, seen by everyone.
    head_classes : list of int
        Classes that this head was made of.
    left_out : LeaveOneOut or None
        What clients left rows out of, the same for all.
    hits : mapping from client to HitCounts
        What they answered, seen by the server.
    loss_query : LossQuery or None
        Which log-losses they were asked for.
    log_losses : mapping from client to LogLosses
        What they answered, seen by the server.
    domains : mapping from client to str
    lied : Lied or None
        The same run with one client that lies, where the audit has made one.
    """

    role: RoleSettings
    uploads: Mapping[int, Statistics] = field(default_factory=dict)
    summed: Statistics | None = None
    counts: Tensor | None = None
    geometry: Geometry | None = None
    prototypes: Mapping[int, Prototypes] = field(default_factory=dict)
    space: Space = field(default_factory=lambda: Space.raw(1))
    replies: Mapping[int, PrepareReply] = field(default_factory=dict)
    trains: bool = False
    updates: Mapping[int, tuple[Update, ...]] = field(default_factory=dict)
    head: tuple[Tensor, Tensor] | None = None
    head_classes: tuple[int, ...] = ()
    left_out: LeaveOneOut | None = None
    hits: Mapping[int, HitCounts] = field(default_factory=dict)
    loss_query: LossQuery | None = None
    log_losses: Mapping[int, LogLosses] = field(default_factory=dict)
    domains: Mapping[int, str] = field(default_factory=dict)
    lied: Lied | None = None

    @property
    def sets(self) -> SetSettings:
        """How clients make the sets that they train on."""
        return self.role.of(SetSettings)

    @property
    def form(self) -> ClosedForm | None:
        """The one-shot head, where there is one."""
        if not self.role.demands.closed_form:
            return None
        return self.role.of(ClosedFormSettings).form


@dataclass(frozen=True)
class Claim:
    """What one client counts as its own and nobody has.

    Attributes
    ----------
    liar : int
    rows : Tensor of shape (C,), int64
        Rows of each class; they add up to 0.
    known : int or None
        The class of most of them, whose scatter is ``scatter I``; the other classes'
        rows are zeros.
    scatter : float
    """

    liar: int
    rows: Tensor
    known: int | None = None
    scatter: float = 0.0


@dataclass(frozen=True)
class Lied:
    """Round 0 once more, with one client that lies in the secure sums.

    Attributes
    ----------
    claim : Claim
    seen : Transcript or None
        None where the run was refused.
    refusal : str
        By whom and why.
    """

    claim: Claim
    seen: Transcript | None
    refusal: str = ""


@dataclass(frozen=True)
class Truth:
    """What attacks are scored by.

    Attributes
    ----------
    clients : mapping from client to (features [n, D], labels [n])
        The rows that clients train on.
    others : tuple of features [m, D] and labels [m]
        Rows of the same kind that nobody trains on.
    num_classes : int
    seed : int
        Keys what is drawn.
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

    def rows(self, client: int, c: int) -> Tensor:
        """The rows of class `c` of a client, float64."""
        x, y = self.clients[client]
        return x[y == c].double()

    def of_class(self, c: int) -> tuple[Tensor, Tensor]:
        """Members of class `c` over all clients and rows that are none, float64."""
        inside = [self.rows(k, c) for k in self.clients]
        return torch.cat(inside), self.others[0][self.others[1] == c].double()


@dataclass(frozen=True)
class Finding:
    """How far an attack came.

    Attributes
    ----------
    attack, observer : str
    figure : str
        What `value` is.
    value : float or None
        None where nothing was attacked.
    low, high : float or None
        An interval of 95% about it, where it is an estimate.
    chance : float or None
        What `value` would be, on average, for who has not seen the run.
    limit : float or None
        At `level` it fails above.
    level : {"rows", "membership", "dp", ""}
        "": told, and no verdict hangs on it.
    passed : bool or None
        None where nothing was attacked, where chance alone could exceed the limit, or
        where there is none.
    tried : int or None
        How many rows, classes or numbers were attacked. None: there was nothing to
        attack. 0: there was, and it was not tried.
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
    """Whether an attack has time left."""

    def __init__(self, seconds: float):
        self._until, self.seconds = time.monotonic() + seconds, seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._until


Attack = Callable[[Transcript, Truth, Clock], Iterable[Finding]]


def nothing(attack: str, observer: str, level: str, why: str, **more) -> Finding:
    """There was nothing to attack."""
    return Finding(attack, observer, "", level=level, note=why, **more)


def untried(attack: str, observer: str, level: str, why: str, **more) -> Finding:
    """There was something to attack, and it was not tried."""
    note = f"not tried: {why}"
    return Finding(attack, observer, "", level=level, tried=0, note=note, **more)


def counted(
    attack: str,
    observer: str,
    what: str,
    right: int,
    tried: int,
    note: str = "",
    adversary: str = CURIOUS,
) -> Finding:
    """So many of those tried were got; one is too many."""
    if not tried:
        why = "the time was over"
        return untried(attack, observer, "rows", why, adversary=adversary)
    return Finding(
        attack,
        observer,
        f"{what}, of {tried}",
        float(right),
        limit=0.0,
        level="rows",
        passed=not right,
        tried=tried,
        adversary=adversary,
        note=note,
    )


def recovered(
    attack: str, observer: str, found: int, tried: int, clock: Clock, note: str = ""
) -> Finding:
    """So many rows were recovered of those tried."""
    missed = f"not recovered in {clock.seconds:g} s" if not found else ""
    note = "; ".join(filter(None, [missed, note]))
    return counted(attack, observer, "rows recovered", found, tried, note=note)


def cosine(one: Tensor, other: Tensor) -> Tensor:
    """Of each row of `one` [n, D] with each of `other` [m, D]: Tensor [n, m]."""
    unit = [
        rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-300) for rows in (one, other)
    ]
    return unit[0] @ unit[1].T


def matched(guesses: Tensor, rows: Tensor) -> int:
    """How many of `rows` [m, D] some guess [n, D] recovers."""
    if not len(guesses) or not len(rows):
        return 0
    return int((cosine(guesses, rows).max(dim=0).values > RECOVERED).sum())


def drawn_classes(
    sizes: Mapping[tuple[int, int], int], seed: int, most: int = 20
) -> list[tuple[int, int]]:
    """So many of the (client, class) pairs of these sizes, the smallest first; of equal
    ones by seed."""
    rng = np.random.default_rng(seed)
    order = sorted(sizes, key=lambda pair: (sizes[pair], rng.random()))
    return order[:most]
