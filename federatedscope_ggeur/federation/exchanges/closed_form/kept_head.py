"""Which of two heads a run leaves: the one in closed form, or the trained one."""

from __future__ import annotations

from collections.abc import Sequence

from federatedscope_ggeur.models.closed_forms import LARGER_PART
from federatedscope_ggeur.reporting import Kept, Round0, RoundRecord

_BY = "val_acc"


def kept_head(round0: Round0, rounds: Sequence[RoundRecord]) -> Kept:
    """Which head is kept after so many rounds; test rows have no say.

    Where labels and domains are confounded it is the trained one: neither rows left
    out nor validation rows of the same clients say how a class looks where it is not.
    Else it is the one that classifies more validation rows rightly, after the last
    round that was evaluated, and of equal ones that in closed form. Without validation
    rows it is that in closed form, which leave-one-out has chosen, if anything has.

    Parameters
    ----------
    round0 : Round0
        With the record of a head in closed form.
    rounds : sequence of RoundRecord
    """
    solved = round0.closed_form
    assert solved is not None, "round 0 has no head in closed form"
    details = solved.details or {}
    if not rounds:
        return Kept("closed_form", "default", None, None)
    known = [r.metrics[_BY] for r in rounds if r.metrics and _BY in r.metrics]
    before, after = (solved.metrics or {}).get(_BY), known[-1] if known else None
    if details.get("confounded_share", 0.0) > LARGER_PART:
        return Kept("trained", "confounded", before, after)
    if before is not None and after is not None:
        return Kept(
            "trained" if after > before else "closed_form", "validation", before, after
        )
    return Kept("closed_form", details.get("chosen_by", "default"), before, after)
