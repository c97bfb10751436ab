"""The messages of leave-one-out: components, hit counts, and log-losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import field
from typing import Any, TypeVar

import torch
from torch import Tensor

from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.geometry import LARGEST_EMBEDDING
from federatedscope_ggeur.models import ClosedForm
from federatedscope_ggeur.models.base import SMOOTHING
from federatedscope_ggeur.models.closed_forms import LOSS_UNITS, Components, LeftOut
from federatedscope_ggeur.models.closed_forms.left_out import (
    CONFIDENCE_BINS,
    LARGEST_LOSS,
    TEMPERATURES,
)

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
