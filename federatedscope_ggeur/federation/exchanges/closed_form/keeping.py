"""Decides which head a run leaves: the one-shot head, the trained one, or their mean.

First whether training can gain anything. At the end, which head the rows prefer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from federatedscope_ggeur.federation.client import MOST_HELD_OUT, held_out_count
from federatedscope_ggeur.models import ClosedForm
from federatedscope_ggeur.models.build import FEW_COLUMNS
from federatedscope_ggeur.models.closed_forms import LARGER_PART, PARTLY_CONFOUNDED
from federatedscope_ggeur.models.closed_forms.auto import Automatic
from federatedscope_ggeur.reporting import Kept, Round0, RoundRecord

from .choice import Choice
from .messages import HitCounts

ENDS = (
    "nothing is trained: no client has enough rows of a class that nobody sent, and "
    "labels and domains are not confounded, so the one-shot head is kept"
)
NO_GAIN = (
    "nothing is trained: the one-shot head is right on nearly all left-out rows, so it "
    "is kept"
)
APART = (
    "nothing is trained: clients or domains differ so much that a trained head, which "
    "knows neither, would be far behind, so the one-shot head is kept"
)
#: If at most this share of the rows is withheld, a mean of two heads is not worth the
#: rounds.
_FEW_WITHHELD = 0.02
#: So few left-out rows may be wrong by chance: their number is less than twice its
#: standard error. Then no gain by training can be seen.
_FEW_WRONG = 3
#: If more than this share of the rows is withheld, left-out rows stand for too little.
_MANY_WITHHELD = 0.2
#: If a mixture of clients or domains makes at most this share of the mistakes of heads
#: that know neither, a trained head, which knows neither, is far behind it.
_FAR_BETTER = 0.5
#: With fewer validation rows the temperature of a trained head would be too uncertain.
LEAST_VALIDATION = 150
#: So many rows held out by all clients are enough for it, and fewer than the second
#: number are too few. Few rows are much better than none.
_ENOUGH_HELD_OUT, LEAST_HELD_OUT = 500, 10
#: Clients that hold rows out must have this share of all rows, to stand for the others.
_LEAST_STANDING = 0.25
#: If the one-shot head is wrong on at most this share of left-out rows, probabilities
#: cannot be far off, and the trained head needs the rows more. Beside rows of many
#: columns it is not worth the rounds.
_SELDOM_WRONG = 0.05


class KnownRows(NamedTuple):
    """What the server knows of all clients' rows before training.

    Attributes
    ----------
    counts : sequence of HitCounts
    sent : int
        The number of rows in statistics.
    unsent : int
        The number of classes that nobody sent.
    """

    counts: Sequence[HitCounts]
    sent: int
    unsent: int = 0

    @property
    def validation(self) -> int:
        """The number of validation rows."""
        return sum(count.validation for count in self.counts)

    @property
    def training(self) -> int:
        """The number of training rows."""
        return sum(count.rows for count in self.counts) - self.validation

    @property
    def withheld_share(self) -> float:
        """The share of training rows that are in no statistics."""
        return 1 - self.sent / self.training if self.training else 0.0

    @property
    def absent(self) -> int:
        """The number of training rows of classes that nobody sent.

        If each client has too few of them to tell, all withheld rows count.
        """
        told = sum(count.absent for count in self.counts)
        return self.training - self.sent if self.unsent and not told else told


class Training(NamedTuple):
    """What a run trains beside its one-shot head.

    Attributes
    ----------
    averages : bool
        Whether the run may keep the mean of both heads.
    hidden : int
        The hidden units of the trained head; 0 for a linear one.
    dim : int
        The number of a row's columns.
    """

    averages: bool
    hidden: int
    dim: int


class Plan(NamedTuple):
    """Whether a run trains, and what for.

    Attributes
    ----------
    averages : bool
        Whether it keeps the mean of both heads.
    confounded : bool
        Whether labels and domains are confounded in part; see `Averaging`.
    hidden : int
        The hidden units of the head that it trains; 0 for a linear one.
    ends : str
        Why nothing is trained; "" if something is.
    details : mapping
        A record of what decided.
    """

    averages: bool = False
    confounded: bool = False
    hidden: int = 0
    ends: str = ""
    details: Mapping[str, Any] = MappingProxyType({})


def plan_training(
    choice: Choice,
    candidates: Sequence[ClosedForm],
    rows: KnownRows,
    training: Training,
) -> Plan:
    """Decide whether a run that keeps the better head skips training.

    Training sees classes that nobody sent, the one-shot head does not. If there are no
    rows of such classes, a trained head is kept only if validation rows prefer it. An
    MLP is averaged with the one-shot head even then, but a linear head is kept alone.
    Without validation rows, training would be useless. A run that averages the two
    heads also trains if every class was sent, but many rows are withheld, or if the
    trained head is an MLP. An MLP begins at random weights. There are two exceptions.
    The one-shot head may be right on nearly all left-out rows. Or it is a mixture of
    clients or domains, and heads that know neither make far more mistakes on these. If
    labels and domains are confounded in part, left-out rows promise the one-shot head
    too much. Such a run trains, whatever they say.
    """
    share, absent, hidden = rows.withheld_share, rows.absent, training.hidden
    details: dict[str, Any] = {
        "withheld_share": share,
        "absent_rows": absent,
        "validation_rows": rows.validation,
    }
    confounded = choice.details.get("confounded_share", 0.0) > PARTLY_CONFOUNDED
    of_sent = not absent and (confounded or share > _FEW_WITHHELD)
    averages, ends = training.averages and (hidden > 0 or of_sent), ENDS
    tells = not confounded and share <= _MANY_WITHHELD
    if averages and not absent and not rows.validation and tells:
        wrong = _wrong_rows(choice)
        few = _SELDOM_WRONG * choice.details.get("scored_rows", 0)
        if training.dim <= FEW_COLUMNS:
            few = min(_FEW_WRONG, few)
        share_of_mistakes = _mistakes_of_mixtures(choice, candidates)
        if wrong <= few:
            details["wrong_rows"], averages, ends = wrong, False, NO_GAIN
        elif share_of_mistakes <= _FAR_BETTER:
            details["share_of_mistakes"] = share_of_mistakes
            averages, ends = False, APART
    if rows.validation or absent or averages:
        ends = ""
    if averages:
        details["averaged"] = True
    if hidden and not ends:
        details["hidden_units"] = hidden
    return Plan(averages, confounded, 0 if ends else hidden, ends, details)


def _wrong_rows(choice: Choice) -> float:
    """The most left-out rows that a finalist classifies wrongly; infinite if none was
    scored."""
    scored = choice.details.get("candidates")
    if not scored or not choice.finalists:
        return math.inf
    least = min(scored[place]["accuracy"] for place in choice.finalists)
    return round((1 - least) * choice.details["scored_rows"])


def _mistakes_of_mixtures(choice: Choice, candidates: Sequence[ClosedForm]) -> float:
    """The mistakes of the best mixture among the finalists, divided by those of the
    best other one; infinite without both."""
    scored = choice.details.get("candidates", ())
    mistakes: dict[bool, list[float]] = {True: [], False: []}
    for place in choice.finalists:
        one = candidates[place]
        taken = one.choice if isinstance(one, Automatic) and one.choice else one
        mistakes[taken.partition_free].append(1 - scored[place]["accuracy"])
    mixtures, others = mistakes[False], mistakes[True]
    if not mixtures or not others or not min(others):
        return math.inf
    return min(mixtures) / min(others)


def share_to_hold_out(choice: Choice, told: KnownRows, least: int) -> float:
    """The share of training rows to hold out for a trained head's temperature.

    It is 0 if there are enough validation rows, or too few rows to spare, or too few
    clients could spare any. It is also 0 if the one-shot head is seldom wrong, on
    left-out rows and on those of classes that nobody sent. Left-out rows cannot tell
    this where many rows are withheld. A client holds out at least `least` of its rows
    or none.
    """
    rows = [count.rows - count.validation for count in told.counts]
    scored = choice.details["scored_rows"]
    known = told.training - told.absent
    wrong = told.absent + known * _wrong_rows(choice) / max(scored, 1)
    tells = told.withheld_share <= _MANY_WITHHELD
    seldom = tells and wrong <= _SELDOM_WRONG * told.training
    if told.validation >= LEAST_VALIDATION or not any(rows) or seldom:
        return 0.0
    share = min(MOST_HELD_OUT, _ENOUGH_HELD_OUT / sum(rows))
    held = [held_out_count(n, share, least) for n in rows]
    standing = sum(n for n, own in zip(rows, held) if own)
    enough = sum(held) >= LEAST_HELD_OUT and standing >= _LEAST_STANDING * sum(rows)
    return share if enough else 0.0


def unmeasured_share(rows: KnownRows) -> float:
    """The one-shot head's share in a mean with a trained head, if no rows choose it.

    The halves are equal, but a one-shot head that has not seen many rows has less.
    """
    return 0.25 if rows.withheld_share > _MANY_WITHHELD else 0.5


_BY = "val_acc"


def absent_rows(round0: Round0) -> int:
    """The number of training rows of classes that nobody sent; 0 if unknown.

    It is an upper bound, the withheld rows, if a class is absent and no client has
    enough such rows to tell. It always is if the server sees only totals.
    """
    details = (round0.closed_form.details if round0.closed_form else None) or {}
    if round0.sums is None:
        return details.get("absent_rows", 0)
    return round0.sums.withheld_rows if details["left_out"] else 0


def kept_head(
    round0: Round0, rounds: Sequence[RoundRecord], share: float | None = None
) -> Kept:
    """Decide which head is kept after these rounds, without using test rows.

    If labels and domains are confounded, the trained head is kept. Neither left-out
    rows nor validation rows of the same clients can show then how a class looks in
    other domains. Otherwise the head with more hits on validation rows after the last
    evaluated round is kept, and on a tie the one-shot head. Without validation rows the
    one-shot head is kept, unless clients have rows of classes that nobody sent. Only
    the trained head has seen these classes. If nobody sent any, it is the only head.

    If the run averages the two heads, that mean takes the place of the trained head.
    Without validation rows it is kept. Rows that training did not see may have chosen
    the share of each head. Then the one-shot head is kept if it has the whole share and
    knows every class, and else the mean. If labels and domains are confounded in part,
    the mean is kept, and no rows choose.

    Parameters
    ----------
    round0 : Round0
        The record of round 0.
    rounds : sequence of RoundRecord
    share : float, optional
        The one-shot head's share in the mean, if rows chose it.
    """
    solved = round0.closed_form
    if solved is None:
        return Kept("trained", "absent", None, None)
    details = solved.details or {}
    if not rounds:
        if "wrong_rows" in details:
            return Kept("closed_form", "right", None, None)
        if "share_of_mistakes" in details:
            return Kept("closed_form", "apart", None, None)
        return Kept("closed_form", details.get("chosen_by", "default"), None, None)
    scored = (r.metrics for r in reversed(rounds) if r.metrics and _BY in r.metrics)
    before, after = (solved.metrics or {}).get(_BY), next(scored, {}).get(_BY)
    averaged = details.get("averaged", False)
    confounded = details.get("confounded_share", 0.0)
    if averaged and confounded > PARTLY_CONFOUNDED:
        return Kept("average", "confounded", before, after)
    if confounded > LARGER_PART:
        return Kept("trained", "confounded", before, after)
    if share is not None:
        if share == 1 and not absent_rows(round0):
            return Kept("closed_form", "log_loss", before, after)
        return Kept("average", "log_loss", before, after)
    if before is not None and after is not None:
        if after <= before:
            return Kept("closed_form", "validation", before, after)
        return Kept("average" if averaged else "trained", "validation", before, after)
    if absent_rows(round0):
        return Kept("average" if averaged else "trained", "absent", before, after)
    if averaged:
        if details.get("hidden_units"):
            return Kept("average", "columns", before, after)
        return Kept("average", "withheld", before, after)
    return Kept("closed_form", details.get("chosen_by", "default"), before, after)
