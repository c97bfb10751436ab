"""Chooses the one-shot head by clients' hits on left-out rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.federation.exchanges.closed_form.leave_one_out import (
    HitCounts,
    LogLosses,
)
from federatedscope_ggeur.geometry import Totals
from federatedscope_ggeur.models import ClosedForm
from federatedscope_ggeur.models.closed_forms import (
    LOSS_UNITS,
    Statistics,
    best_temperature,
)
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
        A record of the choice; empty if there was no choice.
    start : ClosedForm or None
        The form at which training starts, `form` itself or another one; None means
        random weights.
    candidate : int or None
        The index of `form` among the candidates; None if left-out rows do not score it.
    ends : bool
        Whether the run ends with this head, without training.
    """

    form: ClosedForm
    details: dict[str, Any]
    start: ClosedForm | None
    candidate: int | None = None
    ends: bool = False

    def recorded(self, report: dict[str, Any]) -> dict[str, Any]:
        """The record of the head: the `report` of its solution, and the choice.

        If training does not start from this head, the record says where it starts.
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
    "the class): left-out rows show nothing about a class that a domain lacks, so "
    "they did not choose the head; {taken} is used"
)
AT_GRID_END = (
    "{taken} is the last candidate of the grid, so a value beyond may be better; "
    "set the value by hand"
)
UNITS = "; or, if dimensions have different units, set {key} to True"
IN_FEW = (
    "99% of the variance lies in {few} of {dims} dimensions, so {name} hardly uses the "
    "others; if dimensions have different units, scale them beforehand, or set {key} "
    "to auto"
)
#: The shares of the variance and of the dimensions for this note.
_NEARLY_ALL, _FEW = 0.99, 0.2
ENDS = (
    "nothing is trained: no client has enough rows of a class that nobody sent, and "
    "labels and domains are not confounded, so the one-shot head is kept"
)
TRAINED_INSTEAD = ", and training starts from random weights and gives the final head"


def choose_by_hits(
    form: ClosedForm, counts: Sequence[HitCounts], share: float
) -> Choice:
    """Choose the candidate with the best hits over all clients.

    See `ClosedForm.pick`. Training, if there is any, starts from this candidate, too.
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
        can = _can_standardize(chosen)
        if can and not chosen.standardize and not chosen.compressed:
            key = setting(f"{chosen.name}.standardize")
            details["note"] += UNITS.format(key=key)
        logger.warning("%s", details["note"])
    return Choice(chosen, details, chosen, place)


def units_note(form: ClosedForm, statistics: Statistics) -> str:
    """A note if few dimensions have nearly all the variance, or "".

    There is none for a form that can standardize rows: `auto` tries that, and the
    others have a note of their own.
    """
    if _can_standardize(form) or isinstance(form, Automatic):
        return ""
    summed = Totals.of_statistics(statistics).squares.sort(descending=True).values
    parts, dims = summed.cumsum(dim=0), len(summed)
    few = int((parts < _NEARLY_ALL * parts[-1]).sum()) + 1
    if few > _FEW * dims or not parts[-1]:
        return ""
    key = setting("closed_form")
    return IN_FEW.format(few=few, dims=dims, name=form.name, key=key)


def _can_standardize(form: ClosedForm) -> bool:
    """Whether the form has a setting for standardized rows."""
    return any(key.name == "standardize" for key in form.SETTINGS)


def lda_of(
    form: ClosedForm, choice: Choice, counts: Sequence[HitCounts]
) -> LinearDiscriminant | None:
    """The LDA of a choice; with `auto`, the LDA that the same hits prefer."""
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
    """Decide whether a run that keeps the better head skips training.

    Training sees classes that nobody sent, the one-shot head does not. If there are no
    rows of such classes, a trained head is kept only if validation rows prefer it.
    Without validation rows, training would be useless.

    Parameters
    ----------
    choice : Choice
    counts : sequence of HitCounts
    uploaded : mapping from client number to int
        How many rows are in each client's statistics.
    """
    validation = sum(count.validation for count in counts)
    rows = sum(count.rows for count in counts) - validation
    sent = sum(uploaded[count.client] for count in counts)
    share = 1 - sent / rows if rows else 0.0
    absent = sum(count.absent for count in counts)
    known = {
        "withheld_share": share,
        "absent_rows": absent,
        "validation_rows": validation,
    }
    ends = not validation and not absent
    return choice._replace(details={**choice.details, **known}, ends=ends)


def choose_start(form: ClosedForm, counts: Sequence[HitCounts]) -> ClosedForm:
    """The form at which training starts if the chosen head cannot be trained.

    The same hits choose it; see `ClosedForm.pick_start`.
    """
    hits, rows = _added(counts)
    return form.pick_start(hits, rows) if rows else form.untuned().as_start()


def choose_untuned(form: ClosedForm, share: float, keeps_best: bool) -> Choice:
    """Take the head untuned, because labels and domains are confounded; log this.

    Such a head is no good start for training either. A run that may keep the trained
    head starts from random weights and keeps the trained head.
    """
    chosen = form.untuned()
    note = CONFOUNDED.format(share=share, taken=_described(chosen))
    note += TRAINED_INSTEAD if keeps_best else ""
    logger.warning("%s", note)
    details = {"chosen_by": "default", "confounded_share": share, "note": note}
    return Choice(chosen, details, None if keeps_best else chosen)


class Temperature(NamedTuple):
    """The temperature of a head, with its record.

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
    """Choose the temperature with the least log-loss on all clients' left-out rows.

    `by` holds the temperatures that clients have tried.
    """
    rows = sum(answer.rows for answer in answers)
    if not rows:
        why = "no client has enough rows to leave any out"
        return Temperature(1.0, {"not_calibrated": why})
    summed = torch.stack([answer.losses for answer in answers]).sum(dim=0).tolist()
    means = [total / LOSS_UNITS / rows for total in summed]
    value, least = best_temperature(means, by)
    losses = {"left_out_loss": least}
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
    """Add up the hits and the scored rows of all clients."""
    if not counts:
        return torch.zeros(0, dtype=torch.int64), 0
    hits = torch.stack([count.hits for count in counts]).sum(dim=0)
    return hits, sum(count.scored for count in counts)
