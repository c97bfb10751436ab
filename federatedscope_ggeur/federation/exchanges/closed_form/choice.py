"""Chooses the one-shot head by clients' hits on left-out rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.geometry import Totals
from federatedscope_ggeur.models import ClosedForm
from federatedscope_ggeur.models.base import SMOOTHING
from federatedscope_ggeur.models.closed_forms import (
    LOSS_UNITS,
    Statistics,
    best_temperature,
)
from federatedscope_ggeur.models.closed_forms.auto import Automatic
from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant
from federatedscope_ggeur.printable import get_logger

from .leave_one_out import HitCounts, LogLosses

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
    finalists : tuple of int
        The indices of the candidates among which log-losses choose. Empty if left-out
        rows do not score the form.
    candidate : int or None
        The index of `form` among the candidates; until log-losses choose, that of the
        finalist with the most hits. None if there are no finalists.
    ends : bool
        Whether the run ends with this head, without training.
    """

    form: ClosedForm
    details: dict[str, Any]
    start: ClosedForm | None
    finalists: tuple[int, ...] = ()
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
    "to {value}"
)
#: The shares of the variance and of the dimensions for this note.
_NEARLY_ALL, _FEW = 0.99, 0.2
ENDS = (
    "nothing is trained: no client has enough rows of a class that nobody sent, and "
    "labels and domains are not confounded, so the one-shot head is kept"
)
OWN_HEADS = (
    "clients' own heads start from lda, because a mixture has several means for a class"
)
TRAINED_INSTEAD = ", and training starts from random weights and gives the final head"


def choose_by_hits(
    form: ClosedForm,
    counts: Sequence[HitCounts],
    share: float,
    takes_clients: bool = True,
) -> Choice:
    """Choose the finalists by the hits of all clients.

    See `ClosedForm.finalists`. `share` is the result of `confounded_share`.
    """
    candidates, (hits, rows) = form.candidates(), _added(counts)
    weight = _weight_of(counts, rows)
    details: dict[str, Any] = {"confounded_share": share, "scored_rows": rows}
    if not rows:
        chosen = form.untuned()
        return Choice(chosen, {"chosen_by": "default", **details}, chosen)
    scored = [
        {**candidate.described(), "hits": found, "accuracy": found / weight}
        for candidate, found in zip(candidates, hits.tolist())
    ]
    details = {"chosen_by": "leave_one_out", **details, "candidates": scored}
    places = form.finalists(hits, rows, takes_clients)
    most = max(places, key=lambda place: float(hits[place]))
    chosen = candidates[most]
    return Choice(chosen, details, chosen, tuple(places), most)


def choose_by_losses(
    candidates: Sequence[ClosedForm],
    choice: Choice,
    answers: Sequence[LogLosses],
    by: Sequence[Sequence[float]],
    withheld: float = 0.0,
) -> tuple[Choice, Temperature]:
    """Choose the finalist with the least log-loss, and its temperature.

    Each finalist has the log-loss of its own best temperature. On a tie the earlier one
    is taken. Without answers the choice stays.

    Parameters
    ----------
    candidates : sequence of ClosedForm
    choice : Choice
    answers : sequence of LogLosses
    by : sequence of sequence of float
        The temperatures that clients have tried, for each finalist.
    withheld : float
        The result of `cost_of_withheld`. It is added to the log-loss of finalists that
        have no components for withheld rows.
    """
    rows = sum(answer.rows for answer in answers)
    if not rows:
        why = "no client has enough rows to leave any out"
        return choice, Temperature(1.0, {"not_calibrated": why})
    summed = torch.stack([answer.losses for answer in answers]).sum(dim=0)
    means = (summed.double() / LOSS_UNITS / _weight_of(answers, rows)).tolist()
    found = [best_temperature(each, tried) for each, tried in zip(means, by)]
    details = dict(choice.details)
    if "candidates" in details:
        scored = [dict(each) for each in details["candidates"]]
        for place, (_, loss) in zip(choice.finalists, found):
            scored[place]["left_out_loss"] = loss
        details["candidates"] = scored
    costs = [
        loss + withheld * candidates[place].lacks_withheld
        for place, (_, loss) in zip(choice.finalists, found)
    ]
    best = costs.index(min(costs))
    value, least = found[best]
    told = {"temperature": value, "temperature_rows": rows, "left_out_loss": least}
    if 1.0 in by[best]:
        told["left_out_loss_before"] = means[best][list(by[best]).index(1.0)]
    place = choice.finalists[best]
    if place != choice.candidate:
        taken = candidates[place]
        start = None if choice.start is None else taken
        choice = choice._replace(form=taken, start=start, candidate=place)
    return choice._replace(details=details), Temperature(value, told)


def noted_grid_end(choice: Choice) -> Choice:
    """Add a note, and log it, if the chosen strength is the last of the grid."""
    chosen = choice.form
    if choice.details.get("chosen_by") != "leave_one_out" or not chosen.at_grid_end:
        return choice
    note = AT_GRID_END.format(taken=_described(chosen))
    can = _can_standardize(chosen)
    if can and not chosen.standardize and not chosen.compressed:
        note += UNITS.format(key=setting(f"{chosen.name}.standardize"))
    logger.warning("%s", note)
    return choice._replace(details={**choice.details, "note": note})


def units_note(form: ClosedForm, statistics: Statistics, tried: bool) -> str:
    """A note if few dimensions have nearly all the variance, or "".

    There is none for standardized rows. If rows that are left out have `tried`
    strengths, forms that can standardize rows need none: `auto` tries it, and the
    others have a note of their own.
    """
    taken = form.choice or form.lda if isinstance(form, Automatic) else form
    can = _can_standardize(taken)
    if taken.standardize or (tried and can):
        return ""
    summed = Totals.of_statistics(statistics).squares.sort(descending=True).values
    parts, dims = summed.cumsum(dim=0), len(summed)
    few = int((parts < _NEARLY_ALL * parts[-1]).sum()) + 1
    if few > _FEW * dims or not parts[-1]:
        return ""
    key, value = setting("closed_form"), "auto"
    if can:
        key, value = setting(f"{taken.name}.standardize"), "True"
    return IN_FEW.format(few=few, dims=dims, name=taken.name, key=key, value=value)


def _can_standardize(form: ClosedForm) -> bool:
    """Whether the form has a setting for standardized rows."""
    return any(key.name == "standardize" for key in form.SETTINGS)


def best_finalist(
    candidates: Sequence[ClosedForm],
    choice: Choice,
    takes: Callable[[ClosedForm], Any],
) -> ClosedForm | None:
    """The best of the accepted finalists, by `rank`; None if `takes` accepts none."""
    places = [place for place in choice.finalists if takes(candidates[place])]
    scored = choice.details.get("candidates", [{}] * len(candidates))
    best = min(places, key=lambda place: rank(scored[place]), default=None)
    return None if best is None else candidates[best]


def rank(scored: Mapping[str, Any]) -> tuple[float, int]:
    """The order of candidates in a record of the choice; the best comes first.

    The best one has the least log-loss. Where no client told log-losses, it has the
    most hits.
    """
    return scored.get("left_out_loss", math.inf), -scored.get("hits", 0)


def lda_of(form: ClosedForm | None) -> LinearDiscriminant | None:
    """The LDA that a form is, or that `auto` has taken; None if there is none."""
    taken = form.choice if isinstance(form, Automatic) else form
    return taken if isinstance(taken, LinearDiscriminant) else None


def cost_of_withheld(
    counts: Sequence[HitCounts], uploaded: Mapping[int, int], classes: int
) -> float:
    """The log-loss that withheld rows add to each row, if all are sure mistakes.

    Parameters
    ----------
    counts : sequence of HitCounts
    uploaded : mapping from client number to int
        How many rows are in each client's statistics.
    classes : int
    """
    sent = sum(uploaded[count.client] for count in counts)
    rows = sum(count.rows - count.validation for count in counts)
    return (rows - sent) / max(sent, 1) * math.log(classes / SMOOTHING)


#: If at most this share of the rows is withheld, a mean of two heads is not worth the
#: rounds. Measured in docs/heads.md.
_FEW_WITHHELD = 0.02


def end_or_train(
    choice: Choice,
    counts: Sequence[HitCounts],
    uploaded: Mapping[int, int],
    unsent: int,
    averages: bool,
) -> Choice:
    """Decide whether a run that keeps the better head skips training.

    Training sees classes that nobody sent, the one-shot head does not. If there are no
    rows of such classes, a trained head is kept only if validation rows prefer it.
    Without validation rows, training would be useless. A run that `averages` the two
    heads also trains if every class was sent, but many rows are withheld.

    If each client has too few rows of the classes that nobody sent to tell, all
    withheld rows count as such rows.

    Parameters
    ----------
    choice : Choice
    counts : sequence of HitCounts
    uploaded : mapping from client number to int
        How many rows are in each client's statistics.
    unsent : int
        The number of classes that nobody sent.
    averages : bool
    """
    validation = sum(count.validation for count in counts)
    rows = sum(count.rows for count in counts) - validation
    sent = sum(uploaded[count.client] for count in counts)
    share = 1 - sent / rows if rows else 0.0
    absent = sum(count.absent for count in counts)
    if unsent and not absent:
        absent = rows - sent
    known = {
        "withheld_share": share,
        "absent_rows": absent,
        "validation_rows": validation,
    }
    averaged = averages and not absent and share > _FEW_WITHHELD
    if averaged:
        known["averaged"] = True
    ends = not validation and not absent and not averaged
    return choice._replace(details={**choice.details, **known}, ends=ends)


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


def _weight_of(answers: Sequence[HitCounts | LogLosses], rows: int) -> float:
    """The summed weight of the `rows` rows of all answers."""
    weights = [one.weight for one in answers if one.weight is not None]
    return sum(weights) if weights else rows
