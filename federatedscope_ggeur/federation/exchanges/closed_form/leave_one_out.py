"""The messages of leave-one-out: components, hit counts, and log-losses."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Callable, TypeVar

import torch
from torch import Tensor

from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.geometry import LARGEST_EMBEDDING
from federatedscope_ggeur.models import ClosedForm
from federatedscope_ggeur.models.closed_forms import Components, LeftOut
from federatedscope_ggeur.models.closed_forms.temperature import (
    CONFIDENCE_BINS,
    LARGEST_LOSS,
    TEMPERATURES,
)

from ..base import refusal
from ..statistics.upload import take_weights

T = TypeVar("T")
F64, I64 = torch.float64, torch.int64
_TENSORS = ("labels", "counts", "means", "clients", "domains")


@dataclass(frozen=True)
class LeaveOneOut:
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
        return self.to_bytes() == other.to_bytes()

    def to_bytes(self) -> bytes:
        held = self.components
        tensors = {name: getattr(held, name) for name in _TENSORS}
        if held.sums is not None:
            tensors["weights"] = held.sums
        if held.scatter is not None:
            rows, columns = torch.triu_indices(held.dim, held.dim)
            tensors["scatter"] = held.scatter[rows, columns]
        numbers = {"domains": list(held.domain_names)}
        return wire.pack("leave_one_out", numbers, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str = "the server"
    ) -> LeaveOneOut:
        message = wire.unpack(data, "leave_one_out", sender)
        weighted = schema.statistics.weighted
        message.only((*_TENSORS, "scatter", *["weights"] * weighted))
        names, dim = message.texts("domains"), schema.dim
        labels = message.labels("labels", schema.num_classes, distinct=False)
        j = len(labels)
        counts = message.tensor("counts", I64, (j,))
        if not j or ((counts <= 0) | (counts > wire.LARGEST)).any():
            raise message.refuse("counts", f"counts must lie in 1..{wire.LARGEST}")
        means = message.tensor("means", F64, (j, dim))
        if (means.abs() > LARGEST_EMBEDDING).any():
            raise message.refuse(
                "means", f"means must lie within {LARGEST_EMBEDDING:g}"
            )
        clients = message.tensor("clients", I64, (j,))
        domains = message.tensor("domains", I64, (j,))
        if (clients < -1).any() or (clients > wire.LARGEST).any():
            raise message.refuse("clients", "client numbers must be positive")
        if (domains < -1).any() or (domains >= len(names)).any():
            raise message.refuse(
                "domains", "a component names a domain that the message does not list"
            )
        keys = torch.stack([labels, clients, domains], dim=1)
        if len(keys.unique(dim=0)) < j:
            raise message.refuse(
                "labels", "two components have the same client and class"
            )
        scatter = _take_scatter(message, dim) if message.has("scatter") else None
        weights = take_weights(message, j) if weighted else None
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
            )
        )


def _take_scatter(message: wire.Message, dim: int) -> Tensor:
    upper = message.tensor("scatter", F64, (dim * (dim + 1) // 2,))
    if (upper.abs() > LARGEST_EMBEDDING**2 * wire.LARGEST).any():
        raise message.refuse(
            "scatter",
            "expected a finite positive semi-definite scatter of plausible size",
        )
    scatter = torch.zeros(dim, dim, dtype=F64)
    rows, columns = torch.triu_indices(dim, dim)
    scatter[rows, columns] = upper
    return scatter + scatter.T - scatter.diag().diag()


@dataclass(frozen=True)
class HitCounts:
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

    client: int
    rows: int
    hits: Tensor
    validation: int
    scored: int
    absent: int = 0
    weight: float | None = None

    def to_bytes(self) -> bytes:
        numbers = {
            "client": self.client,
            "rows": self.rows,
            "validation": self.validation,
            "scored": self.scored,
            "absent": self.absent,
            **_said_weight(self.weight),
        }
        return wire.pack("hit_counts", numbers, {"hits": self.hits})

    @classmethod
    def from_bytes(cls, data: bytes, schema: MessageSchema, sender: str) -> HitCounts:
        message = wire.unpack(data, "hit_counts", sender)
        message.only(("hits",))
        rows, scored = message.integer("rows"), message.integer("scored")
        if scored > rows:
            raise message.refuse(
                "scored", f"must be at most the {rows} rows of the client, got {scored}"
            )
        weight = _take_weight(message, scored, schema)
        hits = message.tensor("hits", I64 if weight is None else F64, (None,))
        most = scored if weight is None else weight * (1 + 1e-9)
        if ((hits < 0) | (hits > most)).any():
            problem = f"hits must lie in 0..{most:.10g}, the number of scored rows"
            raise message.refuse("hits", problem)
        validation = message.integer("validation")
        if validation > rows:
            problem = f"must be at most the {rows} rows of the client, got {validation}"
            raise message.refuse("validation", problem)
        absent = message.integer("absent")
        if absent + scored > rows:
            problem = f"must be at most the {rows - scored} other rows, got {absent}"
            raise message.refuse("absent", problem)
        return cls(message.client(), rows, hits, validation, scored, absent, weight)


def _said_weight(weight: float | None) -> dict[str, float]:
    return {} if weight is None else {"weight": weight}


def _take_weight(
    message: wire.Message, rows: int, schema: MessageSchema
) -> float | None:
    """Read the summed weight of `rows` rows; None if rows have no weights."""
    if not schema.statistics.weighted:
        return None
    weight = message.number("weight")
    if not 0 <= weight <= wire.LARGEST or (weight > 0) != (rows > 0):
        raise message.refuse("weight", f"{weight} is no weight of {rows} rows")
    return weight


#: The most candidates whose log-losses are asked for.
FINALISTS = 6


@dataclass(frozen=True)
class LossQuery:
    """Round 0, server to client: asks for the log-losses of a few candidates.

    Attributes
    ----------
    candidates : tuple of int
        Their places among the candidates, at most `FINALISTS`.
    temperatures : tuple of tuple of float
        The temperatures of each candidate, ascending; there are `TEMPERATURES` of them.
    """

    candidates: tuple[int, ...]
    temperatures: tuple[tuple[float, ...], ...]

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the answer: candidates and temperatures."""
        return len(self.candidates), TEMPERATURES

    def to_bytes(self) -> bytes:
        tensors = {
            "candidates": torch.tensor(self.candidates, dtype=I64),
            "by": torch.tensor(self.temperatures, dtype=F64),
        }
        return wire.pack("loss_query", {}, tensors)

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str = "the server"
    ) -> LossQuery:
        message = wire.unpack(data, "loss_query", sender)
        message.only(("candidates", "by"))
        candidates = message.tensor("candidates", I64, (None,))
        _check_few(message, "candidates", candidates)
        if (candidates < 0).any() or (candidates.diff() <= 0).any():
            raise message.refuse("candidates", "they must be ascending, from 0")
        by = message.tensor("by", F64, (len(candidates), TEMPERATURES))
        if (by <= 0).any() or (by.diff(dim=1) <= 0).any():
            raise message.refuse("by", "temperatures must be positive and ascending")
        return cls(tuple(candidates.tolist()), tuple(map(tuple, by.tolist())))


@dataclass(frozen=True)
class LogLosses:
    """Round 0, client to server: the rounded log-losses of a few candidates.

    Attributes
    ----------
    client : int
    rows : int
        The number of summed rows; 0 if there are fewer than
        ``ggeur.privacy.min_samples``.
    losses : Tensor of shape (candidates, TEMPERATURES), int64
        Sums over these rows at each temperature, in 1/64 nat.
    weight : float or None
        The summed weight of these rows; None if rows have no weights.
    """

    client: int
    rows: int
    losses: Tensor
    weight: float | None = None

    def require_of(self, candidates: int) -> None:
        """Raise `MessageError` if these are not the losses of so many candidates."""
        if len(self.losses) != candidates:
            problem = f"{len(self.losses)} candidates, but {candidates} were asked for"
            raise refusal(self.client, "losses", problem)

    def to_bytes(self) -> bytes:
        known = {"client": self.client, "rows": self.rows}
        numbers = {**known, **_said_weight(self.weight)}
        return wire.pack("log_losses", numbers, {"losses": self.losses})

    @classmethod
    def from_bytes(cls, data: bytes, schema: MessageSchema, sender: str) -> LogLosses:
        message = wire.unpack(data, "log_losses", sender)
        rows, losses = take_losses(message, (None, TEMPERATURES))
        _check_few(message, "losses", losses)
        weight = _take_weight(message, rows, schema)
        return cls(message.client(), rows, losses, weight)


def _check_few(message: wire.Message, field: str, found: Tensor) -> None:
    """Refuse no candidate, and more than `FINALISTS`."""
    if not 0 < len(found) <= FINALISTS:
        problem = f"expected 1 to {FINALISTS} candidates, got {len(found)}"
        raise message.refuse(field, problem)


def take_losses(
    message: wire.Message, shape: tuple[int | None, ...]
) -> tuple[int, Tensor]:
    """Read and check the number of rows in an answer and its log-losses."""
    message.only(("losses",))
    rows, losses = message.integer("rows"), message.tensor("losses", I64, shape)
    if ((losses < 0) | (losses > LARGEST_LOSS)).any():
        problem = f"log-losses must lie in 0..{LARGEST_LOSS}"
        raise message.refuse("losses", problem)
    if not rows and losses.any():
        raise message.refuse("losses", "losses must be 0 if there are no rows")
    return rows, losses


@dataclass(frozen=True)
class ConfidenceQuery:
    """Round 0, server to client: asks how sure one candidate is at a temperature.

    Attributes
    ----------
    candidate : int
        Its place among the candidates.
    temperature : float
    """

    candidate: int
    temperature: float

    def to_bytes(self) -> bytes:
        numbers = {"candidate": self.candidate, "temperature": self.temperature}
        return wire.pack("confidence_query", numbers, {})

    @classmethod
    def from_bytes(
        cls, data: bytes, schema: MessageSchema, sender: str = "the server"
    ) -> ConfidenceQuery:
        message = wire.unpack(data, "confidence_query", sender)
        message.only(())
        temperature = message.number("temperature")
        if temperature <= 0:
            raise message.refuse("temperature", "must be positive")
        return cls(message.integer("candidate"), temperature)


@dataclass(frozen=True)
class Confidences:
    """Round 0, client to server: how sure the head is of the left-out rows.

    Attributes
    ----------
    client : int
    counts : Tensor of shape (CONFIDENCE_BINS,), int64
        How many rows have their largest probability in each bin. All are 0 if there
        are fewer rows than ``ggeur.privacy.min_samples``.
    """

    client: int
    counts: Tensor

    def to_bytes(self) -> bytes:
        numbers = {"client": self.client}
        return wire.pack("confidences", numbers, {"counts": self.counts})

    @classmethod
    def from_bytes(cls, data: bytes, schema: MessageSchema, sender: str) -> Confidences:
        message = wire.unpack(data, "confidences", sender)
        message.only(("counts",))
        counts = message.tensor("counts", I64, (CONFIDENCE_BINS,))
        if ((counts < 0) | (counts > wire.LARGEST)).any():
            raise message.refuse("counts", f"counts must lie in 0..{wire.LARGEST}")
        return cls(message.client(), counts)
