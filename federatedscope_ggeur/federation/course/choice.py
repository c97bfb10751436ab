"""Which head in closed form the rows that clients have left out speak for.

It belongs to round 0: the one request of it is made here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from federatedscope_ggeur.federation.course.requests import (
    LEAVE_ONE_OUT,
    RequestKind,
    Requests,
)
from federatedscope_ggeur.federation.messages import HitCounts, LeaveOneOut
from federatedscope_ggeur.federation.server import Server
from federatedscope_ggeur.models import ClosedForm
from federatedscope_ggeur.models.closed_forms import LARGER_PART, confounded_share

logger = logging.getLogger(__name__)

#: A head, or what stands for one, and what to record of how it was chosen.
Choice = tuple[ClosedForm, dict[str, Any]]

CONFOUNDED = (
    "labels and domains are confounded ({share:.0%} of how domains differ goes with "
    "the class): rows left out say nothing of a class that a domain lacks, so nothing "
    "was chosen by them; {taken} is taken"
)


#: Kind, round and what goes to whom; the answers that can be used.
Ask = Callable[[RequestKind, int, Mapping[int, "tuple[bytes, ...]"]], Requests[list]]


def choose(
    form: ClosedForm, server: Server, clients: Collection[int], ask: Ask
) -> Requests[Choice]:
    """What a head in closed form that is open becomes; another is itself. The
    `clients` are asked if need be."""
    components = server.components()
    if components is None:
        return form, {}
    share = confounded_share(components)
    if share > LARGER_PART:
        return choose_untuned(form, share)
    components = components.merged(form.grain)
    if form.NEEDS == "means":
        components = replace(components, scatter=None)
    message = LeaveOneOut(components).to_bytes()
    counts = yield from ask(LEAVE_ONE_OUT, 0, dict.fromkeys(clients, (message,)))
    return choose_by_hits(form, counts, share)


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


def choose_untuned(form: ClosedForm, share: float) -> Choice:
    """What is taken where labels and domains are confounded; said in the log, too."""
    chosen = form.untuned()
    kind, *strength = chosen.described().values()
    taken = " ".join([str(kind), *(f"{value:.2g}" for value in strength)])
    note = CONFOUNDED.format(share=share, taken=taken)
    logger.warning("%s", note)
    return chosen, {"chosen_by": "default", "confounded_share": share, "note": note}
