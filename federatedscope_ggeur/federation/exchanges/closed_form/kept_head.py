"""Decides which head a run leaves: the one-shot head or the trained one."""

from __future__ import annotations

from collections.abc import Sequence

from federatedscope_ggeur.models.closed_forms import LARGER_PART
from federatedscope_ggeur.reporting import Kept, Round0, RoundRecord

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


def kept_head(round0: Round0, rounds: Sequence[RoundRecord]) -> Kept:
    """Decide which head is kept after these rounds, without using test rows.

    If labels and domains are confounded, the trained head is kept. Neither left-out
    rows nor validation rows of the same clients can show then how a class looks in
    other domains. Otherwise the head with more hits on validation rows after the last
    evaluated round is kept, and on a tie the one-shot head. Without validation rows the
    one-shot head is kept, unless clients have rows of classes that nobody sent. Only
    the trained head has seen these classes.

    If the run averages the two heads, that mean takes the place of the trained head.
    Without validation rows it is kept.

    Parameters
    ----------
    round0 : Round0
        The record of round 0, with that of a one-shot head.
    rounds : sequence of RoundRecord
    """
    solved = round0.closed_form
    assert solved is not None, "round 0 has no head in closed form"
    details = solved.details or {}
    if not rounds:
        return Kept("closed_form", details.get("chosen_by", "default"), None, None)
    scored = (r.metrics for r in reversed(rounds) if r.metrics and _BY in r.metrics)
    before, after = (solved.metrics or {}).get(_BY), next(scored, {}).get(_BY)
    averaged = details.get("averaged", False)
    if details.get("confounded_share", 0.0) > LARGER_PART:
        return Kept("trained", "confounded", before, after)
    if before is not None and after is not None:
        if after <= before:
            return Kept("closed_form", "validation", before, after)
        return Kept("average" if averaged else "trained", "validation", before, after)
    if absent_rows(round0):
        return Kept("trained", "absent", before, after)
    if averaged:
        return Kept("average", "withheld", before, after)
    return Kept("closed_form", details.get("chosen_by", "default"), before, after)
