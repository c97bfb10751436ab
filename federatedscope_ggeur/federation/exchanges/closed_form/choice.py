"""Chooses the one-shot head, and its temperature, by clients' left-out rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.federation.merge import Release
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

from .messages import FLOORS, HitCounts, LogLosses, LossQuery

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
    """

    form: ClosedForm
    details: dict[str, Any]
    start: ClosedForm | None
    finalists: tuple[int, ...] = ()
    candidate: int | None = None

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


class Calibration(NamedTuple):
    """The calibration of one candidate with the least log-loss.

    Attributes
    ----------
    temperature, floor : float
    loss : float
        The mean log-loss of the rows.
    cost : float
        That, and what temperature and floor cost.
    """

    temperature: float
    floor: float
    loss: float
    cost: float


class Temperature(NamedTuple):
    """The temperature of a head, with its record.

    Attributes
    ----------
    value : float
        1 if none was found. It is the best one for a head without a floor.
    details : dict
    with_floor : Calibration or None
        The best temperature and floor, if a floor is better than none.
    """

    value: float
    details: dict[str, Any]
    with_floor: Calibration | None = None


def calibrations(
    losses: Tensor,
    by: Sequence[Sequence[float]],
    floors: Sequence[float],
    rows: int,
    prior: Callable[[float], float] = lambda temperature: 0.0,
) -> list[Calibration]:
    """The best calibration of each candidate.

    A floor has to gain half of log(`rows`) nats, as Schwarz's criterion (1978) asks of
    one more number.

    Parameters
    ----------
    losses : Tensor of shape (candidates x floors, temperatures)
        The mean log-losses of `rows` rows.
    by : sequence of sequence of float
        The temperatures of each candidate.
    floors : sequence of float
    rows : int
    prior : callable
        What a temperature costs, in nats.
    """
    best = []
    for each, tried in zip(losses.split(len(floors)), by):
        found = []
        for floor, of_floor in zip(floors, each.tolist()):
            posterior = [loss + prior(t) / rows for loss, t in zip(of_floor, tried)]
            temperature, cost = best_temperature(posterior, tried)
            loss = cost - prior(temperature) / rows
            if floor:
                cost += math.log(rows) / 2 / rows
            found.append(Calibration(temperature, floor, loss, cost))
        best.append(min(found, key=lambda one: one.cost))
    return best


CONFOUNDED = (
    "labels and domains are confounded ({share:.0%} of how domains differ goes with "
    "the class): left-out rows show nothing about a class that a domain lacks, so "
    "they did not choose the head; {taken} is used"
)
IN_FEW = (
    "99% of the variance lies in {few} of {dims} dimensions, so {name} hardly uses the "
    "others; if dimensions have different units, scale them beforehand"
)
OR_SET = ", or set {key} to {value}"
ROUNDED = (
    "some dimensions are hardly more than the rounding of the statistics, and rows are "
    "standardized; {finer}, or scale dimensions beforehand"
)
#: The shares of the variance and of the dimensions for this note.
_NEARLY_ALL, _FEW = 0.99, 0.2
#: How much larger than its rounding the sum of a dimension's squares must be.
_NO_MORE = 1e4
NO_HEAD = (
    "no client sent statistics of any class, so there is no one-shot head; training on "
    "all rows gives the head, and updates of clients with few rows can reveal their "
    "rows"
)
OWN_HEADS = (
    "clients' own heads start from lda, since the chosen head has no single mean and "
    "covariance"
)
TRAINED_INSTEAD = ", and training starts from random weights and gives the final head"


def choose_by_hits(
    form: ClosedForm,
    counts: Sequence[HitCounts],
    share: float,
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
        {**candidate.described(), "hits": right, "accuracy": right / weight}
        for candidate, right in zip(candidates, hits.tolist())
    ]
    details = {"chosen_by": "leave_one_out", **details, "candidates": scored}
    places = form.finalists(hits, rows)
    most = max(places, key=lambda place: float(hits[place]))
    chosen = candidates[most]
    return Choice(chosen, details, chosen, tuple(places), most)


def choose_by_losses(
    candidates: Sequence[ClosedForm],
    choice: Choice,
    answers: Sequence[LogLosses],
    query: LossQuery,
    withheld: Mapping[str, float],
) -> tuple[Choice, Temperature]:
    """Choose the finalist with the least log-loss, its temperature and its floor.

    Each finalist has the log-loss of its own best temperature and floor, and pays for a
    floor; see `calibrations`. On a tie the earlier one is taken. Without answers the
    choice stays.

    Parameters
    ----------
    candidates : sequence of ClosedForm
    choice : Choice
    answers : sequence of LogLosses
    query : LossQuery
        What clients were asked.
    withheld : mapping from "client" and "domain" to float
        Results of `cost_of_withheld`. Each is added to the log-loss of finalists that
        have no components for these rows; see `ClosedForm.lacks_withheld`.
    """
    rows = sum(answer.rows for answer in answers)
    if not rows:
        why = "no client has enough rows to leave any out"
        return choice, Temperature(1.0, {"not_calibrated": why})
    summed = torch.stack([answer.losses for answer in answers]).sum(dim=0)
    means = summed.double() / LOSS_UNITS / _weight_of(answers, rows)
    by, floors = query.temperatures, query.floors
    fitted = calibrations(means, by, floors, rows)
    details = dict(choice.details)
    if "candidates" in details:
        scored = [dict(each) for each in details["candidates"]]
        for place, one in zip(choice.finalists, fitted):
            scored[place].update(left_out_loss=one.loss, cost=one.cost)
        details["candidates"] = scored
    costs = [
        one.cost + withheld.get(candidates[place].lacks_withheld, 0.0)
        for place, one in zip(choice.finalists, fitted)
    ]
    behind = _far_behind(candidates, choice, withheld)
    best = min(set(range(len(costs))) - behind, key=lambda k: (costs[k], k))
    temperature, floor, least, _ = fitted[best]
    told = {"temperature": temperature, "temperature_rows": rows}
    told["left_out_loss"] = least
    if query.has_floors:
        told["floor"] = floor
    if 1.0 in by[best]:
        as_it_is = means[best * len(floors), by[best].index(1.0)]
        told["left_out_loss_before"] = float(as_it_is)
    value, raised = temperature, None
    if floor:
        plain = calibrations(means[:: len(floors)], by, FLOORS[:1], rows)
        value, raised = plain[best].temperature, fitted[best]
    place = choice.finalists[best]
    if place != choice.candidate:
        taken = candidates[place]
        start = None if choice.start is None else taken
        choice = choice._replace(form=taken, start=start, candidate=place)
    return choice._replace(details=details), Temperature(value, told, raised)


def _far_behind(
    candidates: Sequence[ClosedForm], choice: Choice, withheld: Mapping[str, float]
) -> set[int]:
    """Which finalists are behind another by more than one standard error of hits.

    They are given by their places in `choice.finalists`. Hits of a mixture of clients
    put no other behind, nor do those of one that lacks withheld rows: they promise too
    much.
    """
    if "candidates" not in choice.details:
        return set()
    scored = [choice.details["candidates"][place] for place in choice.finalists]
    lacking = [candidates[place].lacks_withheld for place in choice.finalists]
    sure = [
        one["accuracy"]
        for one, by in zip(scored, lacking)
        if by != "client" and not withheld.get(by)
    ]
    best = max(sure, default=0.0)
    error = (best * (1 - best) / choice.details["scored_rows"]) ** 0.5
    return {k for k, one in enumerate(scored) if one["accuracy"] < best - error}


def units_note(
    form: ClosedForm,
    statistics: Statistics,
    tried: bool,
    release: Release,
) -> str:
    """A note if few dimensions have nearly all the variance, or "".

    There is none for standardized rows. Where left-out rows have `tried` strengths,
    forms that can standardize rows need none. `auto` tries it, and the others have a
    note of their own.

    The sums of a dimension's squares may have an error of about `release.rounding`, as
    in secure sums. If a dimension that is not constant is hardly more than that, to
    standardize it does harm. Then the note says so, and what to do.
    """
    rounding = release.rounding
    summed = Totals.of_statistics(statistics).squares.sort(descending=True).values
    varying = summed[summed > rounding / _NO_MORE]
    rounded = bool((varying < _NO_MORE * rounding).any())
    if form.standardize and (rounded or release.lost):
        return ROUNDED.format(finer=release.finer)
    if isinstance(form, Automatic):
        if tried:
            return ""
        form = form.choice or form.lda
    can = any(key.name == "standardize" for key in form.SETTINGS)
    if form.standardize or (tried and can):
        return ""
    parts, dims = summed.cumsum(dim=0), len(summed)
    few = int((parts < _NEARLY_ALL * parts[-1]).sum()) + 1
    if few > _FEW * dims or not parts[-1]:
        return ""
    note = IN_FEW.format(few=few, dims=dims, name=form.name)
    if rounded:
        return note
    key, value = setting("closed_form"), "auto"
    if can:
        key, value = setting(f"{form.name}.standardize"), "True"
    return note + OR_SET.format(key=key, value=value)


def best_finalist(
    candidates: Sequence[ClosedForm], choice: Choice, takes: Callable[[ClosedForm], Any]
) -> ClosedForm | None:
    """The best of the accepted finalists, by `rank`; None if `takes` accepts none."""
    places = [place for place in choice.finalists if takes(candidates[place])]
    scored = choice.details.get("candidates", [{}] * len(candidates))
    best = min(places, key=lambda place: rank(scored[place]), default=None)
    return None if best is None else candidates[best]


def rank(scored: Mapping[str, Any]) -> tuple[float, int]:
    """The order of candidates in a record of the choice; the best comes first.

    The best one has the least log-loss, with what its floor costs. Where no client told
    log-losses, it has the most hits.
    """
    return scored.get("cost", math.inf), -scored.get("hits", 0)


def lda_of(form: ClosedForm | None) -> LinearDiscriminant | None:
    """The LDA that a form is, or that `auto` has taken; None if there is none."""
    taken = form.choice if isinstance(form, Automatic) else form
    return taken if isinstance(taken, LinearDiscriminant) else None


def cost_of_withheld(
    counts: Sequence[HitCounts],
    uploaded: Mapping[int, int],
    classes: int,
    among: Collection[int],
) -> float:
    """The log-loss that withheld rows add to each row, if all are sure mistakes.

    Parameters
    ----------
    counts : sequence of HitCounts
    uploaded : mapping from client number to int
        How many rows are in each client's statistics.
    classes : int
    among : collection of int
        The clients whose withheld rows count.
    """
    sent = sum(uploaded[count.client] for count in counts)
    withheld = sum(
        count.rows - count.validation - uploaded[count.client]
        for count in counts
        if count.client in among
    )
    return withheld / max(sent, 1) * math.log(classes / SMOOTHING)


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
