"""Chooses the one-shot head by the clients' hits on left-out rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from federatedscope_ggeur.federation.exchanges.closed_form.leave_one_out import (
    HitCounts,
    LogLosses,
)
from federatedscope_ggeur.models import ClosedForm
from federatedscope_ggeur.models.closed_forms import LOSS_UNITS, best_temperature
from federatedscope_ggeur.models.closed_forms.auto import Automatic
from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant
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
    candidate : int or None
        The place of `form` among the candidates; None if left-out rows do not score it.
    ends : bool
        Whether the run ends with this head: nothing is trained.
    """

    form: ClosedForm
    details: dict[str, Any]
    start: ClosedForm | None
    candidate: int | None = None
    ends: bool = False

    def recorded(self, report: dict[str, Any]) -> dict[str, Any]:
        """What to record of the head: the `report` of its solution and how it was
        chosen.

        Also where training starts, if it does not start from the head.
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
#: If a larger share of rows is withheld, the trained head is kept. The share is from
#: the data sets of one study, CLIP's embeddings and others.
MOST_WITHHELD = 0.02
ENDS = (
    "nothing is trained: {share:.1%} of the rows are withheld, and labels and domains "
    "are not confounded, so the one-shot head is kept"
)
TRAINED_INSTEAD = ", and training, from random weights, has the last word"


def choose_by_hits(
    form: ClosedForm, counts: Sequence[HitCounts], share: float
) -> Choice:
    """The candidate with the best hits over all clients, see `ClosedForm.pick`.

    Training, if there is any, starts there, too.

    `share` is the result of `confounded_share`.
    """
    candidates, (hits, rows) = form.candidates(), _added(counts)
    details: dict[str, Any] = {"confounded_share": share, "scored_rows": rows}
    if not rows:
        chosen = form.untuned()
        return Choice(chosen, {"chosen_by": "default", **details}, chosen)
    scored = [
        {**candidate.described(), "hits": int(found), "accuracy": int(found) / rows}
        for candidate, found in zip(candidates, hits)
    ]
    details = {"chosen_by": "leave_one_out", **details, "candidates": scored}
    place = form.pick(hits, rows)
    chosen = candidates[place]
    if chosen.at_grid_end:
        details["note"] = AT_GRID_END.format(taken=_described(chosen))
        logger.warning("%s", details["note"])
    return Choice(chosen, details, chosen, place)


def lda_of(
    form: ClosedForm, choice: Choice, counts: Sequence[HitCounts]
) -> LinearDiscriminant | None:
    """The LDA of a choice or, with `auto`, the one that the same hits prefer."""
    if isinstance(choice.form, LinearDiscriminant):
        return choice.form
    hits, rows = _added(counts)
    if not isinstance(form, Automatic) or not rows:
        return None
    found = form.pick_among(lambda kind: kind.name == form.lda.name, hits, rows)
    assert isinstance(found, LinearDiscriminant)
    return found


def end_or_train(
    choice: Choice, counts: Sequence[HitCounts], uploaded: Mapping[int, int]
) -> Choice:
    """Whether a run that keeps the better head ends with the one-shot head.

    Training sees withheld rows; the one-shot head does not. If few rows are withheld,
    the trained head would be kept only on the word of validation rows. Without such
    rows, training is of no use.

    Parameters
    ----------
    choice : Choice
    counts : sequence of HitCounts
    uploaded : mapping from client number to int
        The rows that each client sent statistics of.
    """
    validation = sum(count.validation for count in counts)
    rows = sum(count.rows for count in counts) - validation
    sent = sum(uploaded[count.client] for count in counts)
    share = 1 - sent / rows if rows else 0.0
    known = {"withheld_share": share, "validation_rows": validation}
    ends = not validation and share <= MOST_WITHHELD
    return choice._replace(details={**choice.details, **known}, ends=ends)


def choose_start(form: ClosedForm, counts: Sequence[HitCounts]) -> ClosedForm:
    """Where training starts, by the same hits, if the chosen head cannot be trained.

    See `ClosedForm.pick_start`.
    """
    hits, rows = _added(counts)
    return form.pick_start(hits, rows) if rows else form.untuned().as_start()


def choose_untuned(form: ClosedForm, share: float, keeps_best: bool) -> Choice:
    """The head if labels and domains are confounded. The log says so.

    The head is no good start either. A run that may keep the trained head starts from
    random weights and keeps the trained head.
    """
    chosen = form.untuned()
    note = CONFOUNDED.format(share=share, taken=_described(chosen))
    note += TRAINED_INSTEAD if keeps_best else ""
    logger.warning("%s", note)
    details = {"chosen_by": "default", "confounded_share": share, "note": note}
    return Choice(chosen, details, None if keeps_best else chosen)


class Temperature(NamedTuple):
    """The temperature of a head, and what to record of it.

    Attributes
    ----------
    value : float
        1 if none was found.
    details : dict
    """

    value: float
    details: dict[str, Any]


def choose_temperature(
    answers: Sequence[LogLosses], by: Sequence[float]
) -> Temperature:
    """The temperature with the least log-loss over all clients' left-out rows.

    `by` are the temperatures that clients were asked for.
    """
    rows = sum(answer.rows for answer in answers)
    if not rows:
        why = "no client has enough rows to leave out"
        return Temperature(1.0, {"not_calibrated": why})
    summed = torch.stack([answer.losses for answer in answers]).sum(dim=0).tolist()
    means = [total / LOSS_UNITS / rows for total in summed]
    value = best_temperature(means, by)
    losses = {"left_out_loss": min(means)}
    if 1.0 in by:
        losses["left_out_loss_before"] = means[list(by).index(1.0)]
    details = {"temperature": value, "temperature_rows": rows, **losses}
    return Temperature(value, details)


def _described(form: ClosedForm) -> str:
    described = form.described()
    kind = str(described["closed_form"])
    if described.get("standardize"):
        kind += " on standardized rows"
    strength = described.get(form.tuned_setting)
    return kind if strength is None else f"{kind}, {form.tuned_setting} {strength:.2g}"


def _added(counts: Sequence[HitCounts]) -> tuple[torch.Tensor, int]:
    """The hits and scored rows of all clients."""
    if not counts:
        return torch.zeros(0, dtype=torch.int64), 0
    hits = torch.stack([count.hits for count in counts]).sum(dim=0)
    return hits, sum(count.scored for count in counts)
