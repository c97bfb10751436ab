"""Which head in closed form the rows that clients have left out speak for."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch

from federatedscope_ggeur.federation.messages import HitCounts
from federatedscope_ggeur.models import ClosedForm
from federatedscope_ggeur.models.closed_forms import LARGER_PART

logger = logging.getLogger(__name__)

#: A head, or what stands for one, and what to record of how it was chosen.
Choice = tuple[ClosedForm, dict[str, Any]]

CONFOUNDED = (
    "labels and domains are confounded ({share:.0%} of how domains differ goes with "
    "the class): rows left out say nothing of a class that a domain lacks, so nothing "
    "was chosen by them; {taken} is taken"
)


def choose_by_hits(
    form: ClosedForm, counts: Sequence[HitCounts], share: float
) -> Choice:
    """The candidate that the hits over all clients speak for, see `ClosedForm.pick`.

    `share` is what `confounded_share` has said.
    """
    candidates, rows = form.candidates(), sum(count.rows for count in counts)
    details: dict[str, Any] = {"confounded_share": share, "scored_rows": rows}
    if not rows:
        return form.untuned(), {"chosen_by": "default", **details}
    hits = torch.stack([count.hits for count in counts]).sum(dim=0)
    scored = [
        {**candidate.described(), "hits": int(found), "accuracy": int(found) / rows}
        for candidate, found in zip(candidates, hits)
    ]
    details = {"chosen_by": "leave_one_out", **details, "candidates": scored}
    return candidates[form.pick(hits, rows)], details


def recorded(report: dict[str, Any], how: dict[str, Any]) -> dict[str, Any]:
    """What to record of a head: the `report` of its solution, and `how` it came to be
    chosen, if it was."""
    rule = report.get("shrinkage_rule")
    if how and rule == "set":
        report = {**report, "shrinkage_rule": how["chosen_by"]}
    return {**report, **how}


def is_confounded(share: float) -> bool:
    """Whether rows left out are not to be believed."""
    return share > LARGER_PART


def choose_untuned(form: ClosedForm, share: float) -> Choice:
    """What is taken where labels and domains are confounded; said in the log, too."""
    chosen = form.untuned()
    kind, *strength = chosen.described().values()
    taken = " ".join([str(kind), *(f"{value:.2g}" for value in strength)])
    note = CONFOUNDED.format(share=share, taken=taken)
    logger.warning("%s", note)
    return chosen, {"chosen_by": "default", "confounded_share": share, "note": note}
