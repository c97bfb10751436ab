"""Which one-shot head the hits of clients on left-out rows speak for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from federatedscope_ggeur.federation.exchanges.closed_form.leave_one_out import (
    HitCounts,
)
from federatedscope_ggeur.models import ClosedForm
from federatedscope_ggeur.printable import get_logger

logger = get_logger(__name__)


class Choice(NamedTuple):
    """What a head in closed form has become.

    Attributes
    ----------
    form : ClosedForm
    details : dict
        What to record of how it was chosen; empty where there was nothing to choose.
    start : ClosedForm or None
        What training starts from: `form`, another one, or None, random weights.
    """

    form: ClosedForm
    details: dict[str, Any]
    start: ClosedForm | None

    def recorded(self, report: dict[str, Any]) -> dict[str, Any]:
        """What to record of the head: the `report` of its solution, how it came to be
        chosen, and where training starts if not from it."""
        how = dict(self.details)
        if "chosen_by" in how and report.get("shrinkage_rule") == "set":
            report = {**report, "shrinkage_rule": how["chosen_by"]}
        if self.start is None:
            how["start"] = {"closed_form": "none"}
        elif self.start is not self.form:
            how["start"] = self.start.described()
        return {**report, **how}


CONFOUNDED = (
    "labels and domains are confounded ({share:.0%} of how domains differ goes with "
    "the class): rows left out say nothing of a class that a domain lacks, so nothing "
    "was chosen by them; {taken} is taken"
)
AT_GRID_END = (
    "{taken} is taken, which is the last that is tried: one beyond it may be better; "
    "set it by hand"
)
TRAINED_INSTEAD = ", and training, from random weights, has the last word"


def choose_by_hits(
    form: ClosedForm, counts: Sequence[HitCounts], share: float
) -> tuple[ClosedForm, dict[str, Any]]:
    """The candidate that the hits over all clients speak for, see `ClosedForm.pick`,
    and what to record of it.

    `share` is what `confounded_share` has said.
    """
    candidates, (hits, rows) = form.candidates(), _added(counts)
    details: dict[str, Any] = {"confounded_share": share, "scored_rows": rows}
    if not rows:
        return form.untuned(), {"chosen_by": "default", **details}
    scored = [
        {**candidate.described(), "hits": int(found), "accuracy": int(found) / rows}
        for candidate, found in zip(candidates, hits)
    ]
    details = {"chosen_by": "leave_one_out", **details, "candidates": scored}
    chosen = candidates[form.pick(hits, rows)]
    if chosen.at_grid_end:
        details["note"] = AT_GRID_END.format(taken=_described(chosen))
        logger.warning("%s", details["note"])
    return chosen, details


def choose_start(form: ClosedForm, counts: Sequence[HitCounts]) -> ClosedForm:
    """What training starts from by the same hits, where a head that is not trained may
    be chosen, see `ClosedForm.pick_start`."""
    hits, rows = _added(counts)
    return form.pick_start(hits, rows) if rows else form.untuned().as_start()


def choose_untuned(
    form: ClosedForm, share: float, trains: bool = False
) -> tuple[ClosedForm, dict[str, Any]]:
    """What is taken where labels and domains are confounded, and what to record of it;
    said in the log, too. `trains` says that the trained head is kept in its place."""
    chosen = form.untuned()
    note = CONFOUNDED.format(share=share, taken=_described(chosen))
    note += TRAINED_INSTEAD if trains else ""
    logger.warning("%s", note)
    return chosen, {"chosen_by": "default", "confounded_share": share, "note": note}


def _described(form: ClosedForm) -> str:
    described = form.described()
    kind = str(described["closed_form"])
    if described.get("standardize"):
        kind += " on standardized rows"
    strength = described.get(form.tuned_setting)
    return kind if strength is None else f"{kind}, {form.tuned_setting} {strength:.2g}"


def _added(counts: Sequence[HitCounts]) -> tuple[torch.Tensor, int]:
    """Hits and rows of all clients."""
    if not counts:
        return torch.zeros(0, dtype=torch.int64), 0
    hits = torch.stack([count.hits for count in counts]).sum(dim=0)
    return hits, sum(count.rows for count in counts)
