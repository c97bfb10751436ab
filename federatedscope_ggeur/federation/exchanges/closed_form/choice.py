"""Chooses the one-shot head by clients' hits on left-out rows.

The messages of leave-one-out: components, hit counts, and log-losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.merge import Release
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.geometry import LARGEST_EMBEDDING, Totals
from federatedscope_ggeur.models import ClosedForm
from federatedscope_ggeur.models.base import SMOOTHING
from federatedscope_ggeur.models.closed_forms import (
    LOSS_UNITS,
    Components,
    LeftOut,
    Statistics,
    best_temperature,
)
from federatedscope_ggeur.models.closed_forms.auto import Automatic
from federatedscope_ggeur.models.closed_forms.lda import LinearDiscriminant
from federatedscope_ggeur.models.closed_forms.left_out import (
    CONFIDENCE_BINS,
    LARGEST_LOSS,
    TEMPERATURES,
)
from federatedscope_ggeur.printable import get_logger

from ..base import refusal
from ..statistics.upload import EMBEDDINGS, take_weights

T = TypeVar("T")
F64, I64 = torch.float64, torch.int64
_TENSORS = ("labels", "counts", "means", "clients", "domains")


class LeaveOneOut(wire.Payload, kind="leave_one_out"):
    """Round 0, server to all clients: the components from which rows are left out.

    They are float64, so that client and server compute the same numbers.
    """

    components: Components
    _derived: dict[Hashable, Any] = field(
        default_factory=dict, compare=False, repr=False
    )

    def scores(self, form: ClosedForm, candidate: int | None = None) -> LeftOut:
        """Prepare the scores of left-out rows by the candidates of `form`.

        With `candidate` only this one scores. Clients of a process that have the same
        `form` share the result.
        """

        def prepared() -> tuple[ClosedForm, LeftOut]:
            one = form if candidate is None else form.candidates()[candidate]
            return form, one.leave_out(self.components)

        # The form is kept, so that no other one can get its id.
        return self.once((id(form), candidate), prepared)[1]

    def once(self, key: Hashable, derive: Callable[[], T]) -> T:
        """The result of `derive`, which is called only once for all clients."""
        if key not in self._derived:
            self._derived[key] = derive()
        return self._derived[key]

    def equals(self, other: LeaveOneOut) -> bool:
        return self is other or self.to_bytes() == other.to_bytes()

    def write(self) -> wire.Content:
        held = self.components
        tensors = {name: getattr(held, name) for name in _TENSORS}
        if held.sums is not None:
            tensors["weights"] = held.sums
        if held.scatter is not None:
            rows, columns = torch.triu_indices(held.dim, held.dim)
            tensors["scatter"] = held.scatter[rows, columns]
            if held.class_scatters is not None:
                tensors["class_scatters"] = held.class_scatters[:, rows, columns]
        return {"domains": list(held.domain_names)}, tensors

    @classmethod
    def read(cls, message: wire.Message, schema: MessageSchema) -> LeaveOneOut:
        names, dim = message.texts("domains"), schema.dim
        labels = message.labels("labels", schema.num_classes, distinct=False)
        j = len(labels)
        if not j:
            raise message.refuse("labels", "there are no components")
        counts = message.tensor("counts", I64, (j,), (1, wire.LARGEST))
        means = message.tensor("means", F64, (j, dim), EMBEDDINGS)
        clients = message.tensor("clients", I64, (j,), (-1, wire.LARGEST))
        domains = message.tensor("domains", I64, (j,), (-1, len(names) - 1))
        keys = torch.stack([labels, clients, domains], dim=1)
        if len(keys.unique(dim=0)) < j:
            raise message.refuse(
                "labels", "two components have the same client and class"
            )
        scatter = class_scatters = None
        if message.has("scatter"):
            scatter = _take_scatters(message, "scatter", dim)
        if message.has("class_scatters"):
            present = len(labels.unique())
            class_scatters = _take_scatters(message, "class_scatters", dim, present)
        weights = take_weights(message, j) if _is_weighted(schema) else None
        return cls(
            Components(
                labels,
                counts,
                means,
                clients,
                domains,
                schema.num_classes,
                names,
                scatter,
                weights,
                class_scatters,
            )
        )


def _take_scatters(
    message: wire.Message, name: str, dim: int, *class_scatters: int
) -> Tensor:
    """Read a scatter [D, D] from its upper triangle, or one for each class."""
    most, shape = LARGEST_EMBEDDING**2 * wire.LARGEST, (dim * (dim + 1) // 2,)
    upper = message.tensor(name, F64, (*class_scatters, *shape), (-most, most))
    scatter = torch.zeros(*class_scatters, dim, dim, dtype=F64)
    rows, columns = torch.triu_indices(dim, dim)
    scatter[..., rows, columns] = upper
    scatter[..., columns, rows] = upper
    return scatter


def _is_weighted(schema: MessageSchema) -> bool:
    return schema.statistics.weighted


def _check_weight(weight: float | None, rows: int) -> None:
    """Check the summed weight of `rows` rows; None if rows have no weights."""
    if weight is None:
        return
    if weight > wire.LARGEST or (weight > 0) != (rows > 0):
        raise wire.refusal("weight", f"{weight} is no weight of {rows} rows")


class HitCounts(wire.Payload, kind="hit_counts"):
    """Round 0, client to server: each candidate's hits on the client's rows.

    Attributes
    ----------
    client : int
    rows : int
        All rows of the client, also validation rows and rows of withheld classes.
    hits : Tensor of shape (candidates,), int64
        float64 if rows have weights: the sum of the weights of the rows that are hit.
    validation : int
        The number of validation rows.
    scored : int
        The number of scored rows; rows of withheld classes are not scored.
    absent : int
        The number of training rows whose class nobody sent; 0 if they are fewer than
        ``ggeur.privacy.min_samples``.
    weight : float or None
        The summed weight of the scored rows; None if rows have no weights.
    """

    client: int = wire.client()
    rows: int = wire.integer()
    hits: Tensor = wire.tensor(lambda s: F64 if _is_weighted(s) else I64, (None,))
    validation: int = wire.integer()
    scored: int = wire.integer()
    absent: int = wire.integer(default=0)
    weight: float | None = wire.number(when=_is_weighted, default=None)

    def check(self, schema: MessageSchema) -> None:
        rows, scored = self.rows, self.scored
        self._check_at_most(rows, "scored", f"the {rows} rows of the client")
        _check_weight(self.weight, scored)
        most = scored if self.weight is None else self.weight * (1 + 1e-9)
        problem = wire.range_problem(self.hits, (0, most))
        if problem:
            raise wire.refusal("hits", problem)
        self._check_at_most(rows, "validation", f"the {rows} rows of the client")
        self._check_at_most(rows - scored, "absent", f"the {rows - scored} other rows")

    def _check_at_most(self, most: int, field: str, rows: str) -> None:
        value = getattr(self, field)
        if value > most:
            raise wire.refusal(field, f"must be at most {rows}, got {value}")


#: The most candidates whose log-losses are asked for.
FINALISTS = 6
#: The floors that are tried for a head that can have one; see `AverageHead`.
FLOORS = (0.0, 0.02, 0.05, 0.1, 0.2)


def _number_problem(count: int, most: int) -> str:
    """What is wrong with the number of candidates; "" if nothing is."""
    return "" if 0 < count <= most else f"expected 1 to {most}, got {count}"


def _candidates_problem(candidates: Tensor) -> str:
    problem = _number_problem(len(candidates), FINALISTS)
    if not problem and ((candidates < 0).any() or (candidates.diff() <= 0).any()):
        problem = "they must be ascending, from 0"
    return problem


def _losses_problem(losses: Tensor) -> str:
    return _number_problem(len(losses), FINALISTS * len(FLOORS))


def _temperatures_problem(temperatures: Tensor) -> str:
    if (temperatures <= 0).any() or (temperatures.diff(dim=1) <= 0).any():
        return "temperatures must be positive and ascending"
    return ""


class LossQuery(wire.Payload, kind="loss_query"):
    """Round 0, server to client: asks for the log-losses of a few candidates.

    Attributes
    ----------
    candidates : tuple of int
        Their places among the candidates, at most `FINALISTS`.
    temperatures : tuple of tuple of float
        The temperatures of each candidate, ascending; there are `TEMPERATURES` of them.
    has_floors : bool
        Whether each candidate is tried with each of the `FLOORS`.
    """

    candidates: tuple[int, ...] = wire.integers(problem=_candidates_problem)
    temperatures: tuple[tuple[float, ...], ...] = wire.tensor(
        F64,
        ("candidates", TEMPERATURES),
        name="by",
        problem=_temperatures_problem,
        converts=(
            lambda by: torch.tensor(by, dtype=F64),
            lambda tensor: tuple(map(tuple, tensor.tolist())),
        ),
    )
    has_floors: bool = wire.flag(default=False, optional=True)

    @property
    def floors(self) -> tuple[float, ...]:
        """The floors with which each candidate is tried."""
        return FLOORS if self.has_floors else FLOORS[:1]

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the answer: candidates with floors, and temperatures."""
        return len(self.candidates) * len(self.floors), TEMPERATURES


#: The bounds of log-losses that are summed over rows.
LOSSES = (0, LARGEST_LOSS)


def check_losses(weight: float, losses: Tensor, classes: int) -> None:
    """Check that rows with this summed weight can have these log-losses.

    Probabilities are smoothed, so the loss of a row is bounded; see `log_losses`.
    """
    most = weight * math.log(classes / SMOOTHING) * LOSS_UNITS * (1 + 1e-9)
    if not weight and losses.any():
        raise wire.refusal("losses", "losses must be 0 if there are no rows")
    if losses.numel() and int(losses.max()) > most + 1:
        problem = f"{int(losses.max())} is more than {weight:g} rows can have"
        raise wire.refusal("losses", problem)


class LogLosses(wire.Payload, kind="log_losses"):
    """Round 0, client to server: the rounded log-losses of a few candidates.

    Attributes
    ----------
    client : int
    rows : int
        The number of summed rows; 0 if there are fewer than
        ``ggeur.privacy.min_samples``.
    losses : Tensor of shape (candidates x floors, TEMPERATURES), int64
        Sums over these rows at each temperature, in 1/64 nat; first those of the first
        candidate with each floor.
    weight : float or None
        The summed weight of these rows; None if rows have no weights.
    """

    client: int = wire.client()
    rows: int = wire.integer()
    losses: Tensor = wire.tensor(
        I64, (None, TEMPERATURES), LOSSES, problem=_losses_problem
    )
    weight: float | None = wire.number(when=_is_weighted, default=None)

    def check(self, schema: MessageSchema) -> None:
        weight = self.rows if self.weight is None else self.weight
        check_losses(weight, self.losses, schema.num_classes)
        _check_weight(self.weight, self.rows)

    def require_of(self, query: LossQuery) -> None:
        """Raise `MessageError` if the losses do not have the shape of the query."""
        found, asked = len(self.losses), query.shape[0]
        if found != asked:
            problem = f"those of {found} heads, but {asked} were asked for"
            raise refusal(self.client, "losses", problem)


class OneCandidate(wire.Payload, kind="one_candidate"):
    """Round 0, server to client: one candidate, and the temperature of its scores.

    Attributes
    ----------
    candidate : int
        Its place among the candidates.
    temperature : float
    summed : bool
        Whether the client's rows are in the components.
    gives_offsets : bool
        Whether the client trains with offsets; see `MLPHead`.
    floor : float
        The floor of its probabilities; see `AverageHead`.
    """

    candidate: int = wire.integer()
    temperature: float = wire.number(
        problem=lambda value: "" if value > 0 else "must be positive"
    )
    summed: bool = wire.flag(default=True, optional=True)
    gives_offsets: bool = wire.flag(default=False, optional=True)
    floor: float = wire.number(FLOORS[-1], default=0.0, optional=True)


class Confidences(wire.Payload, kind="confidences"):
    """Round 0, client to server: how sure the head is of the left-out rows.

    Attributes
    ----------
    client : int
    counts : Tensor of shape (CONFIDENCE_BINS,), int64
        How many rows have their largest probability in each bin. All are 0 if there
        are fewer rows than ``ggeur.privacy.min_samples``.
    """

    client: int = wire.client()
    counts: Tensor = wire.tensor(I64, (CONFIDENCE_BINS,), (0, wire.LARGEST))


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
        {**candidate.described(), "hits": right, "accuracy": right / weight}
        for candidate, right in zip(candidates, hits.tolist())
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
