"""Chooses the one-shot head by the clients' hits on left-out rows."""

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
    """The chosen one-shot head.

    Attributes
    ----------
    form : ClosedForm
    details : dict
        What to record of the choice; empty if there was none.
    start : ClosedForm or None
        Where training starts: at `form`, at another form, or, with None, at random
        weights.
    """

    form: ClosedForm
    details: dict[str, Any]
    start: ClosedForm | None

    def recorded(self, report: dict[str, Any]) -> dict[str, Any]:
        """What to record of the head: the `report` of its solution, how it was chosen,
        and where training starts if not from it.
        """
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
    """The candidate with the best hits over all clients, see `ClosedForm.pick`, and
    what to record of the choice.

    `share` is the result of `confounded_share`.
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
    """Where training starts by the same hits, if the chosen head cannot be trained; see
    `ClosedForm.pick_start`.
    """
    hits, rows = _added(counts)
    return form.pick_start(hits, rows) if rows else form.untuned().as_start()


def choose_untuned(
    form: ClosedForm, share: float, trains: bool = False
) -> tuple[ClosedForm, dict[str, Any]]:
    """The head if labels and domains are confounded, and what to record. The log says
    so. With `trains`, the trained head is kept instead.
    """
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
    """The hits and rows of all clients."""
    if not counts:
        return torch.zeros(0, dtype=torch.int64), 0
    hits = torch.stack([count.hits for count in counts]).sum(dim=0)
    return hits, sum(count.rows for count in counts)
