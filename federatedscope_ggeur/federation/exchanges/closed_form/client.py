"""A client scores candidate heads on its left-out rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.federation.client import Client, chosen_rows
from federatedscope_ggeur.models import ClosedForm
from federatedscope_ggeur.models.closed_forms import (
    LeftOut,
    ScoredRows,
    in_units,
    left_out_confidences,
    left_out_hits,
    left_out_logits,
    left_out_losses,
)
from federatedscope_ggeur.models.closed_forms.left_out import CONFIDENCE_BINS
from federatedscope_ggeur.models.folding import AverageHead

from ..base import ClientSide
from .messages import (
    FLOORS,
    Confidences,
    HitCounts,
    LeaveOneOut,
    LogLosses,
    LossQuery,
    OneCandidate,
)


@dataclass(frozen=True)
class ClosedFormSettings:
    """The settings of a run's one-shot head.

    Attributes
    ----------
    form : ClosedForm
    """

    form: ClosedForm


class ClosedFormClient(ClientSide):
    """Scores candidate heads on the client's left-out rows.

    It counts the hits of each candidate, and reports the log-loss of one candidate.
    """

    _asked: LeaveOneOut | None = None

    def __init__(self, client: Client, rows: Mapping[str, Embeddings]):
        super().__init__(client, rows)
        self._queries: dict[type, LossQuery | OneCandidate] = {}

    def hit_counts(self, message: LeaveOneOut) -> HitCounts:
        """Count each candidate's hits on rows of the classes that the client has sent.

        Validation rows are scored, too; they are in no statistics. Each other row is
        left out of the statistics that contain it. Rows of withheld classes are not
        scored. An attacker who knows all other rows could recognise withheld rows by
        their hits (attack A13 of the audit).

        Raises
        ------
        MessageError
            The components differ from those of the first request. A server that could
            choose them several times could tell rows apart.
        """
        self._note(message)
        scores, parts = self._scores(message), self.parts(message)
        hits = [left_out_hits(scores, rows) for rows in parts]
        validation = len(self._validation()[1])
        counts, known = self.client.counts, message.components.labels.unique()
        absent = int(counts.sum() - counts[known].sum())
        scored, weight = sum(len(rows) for rows in parts), _weight_of(parts)
        summed = sum(hits[1:], hits[0])
        return HitCounts(
            self.client.number,
            len(self.client.labels) + validation,
            summed if weight is None else rounded_hits(summed, weight, scored),
            validation,
            scored,
            absent if absent >= self.client.settings.min_samples else 0,
            weight,
        )

    def log_losses(self, message: LeaveOneOut | None, query: LossQuery) -> LogLosses:
        """Compute the log-losses of a few candidates on the rows of `hit_counts`.

        There is one loss for each candidate, floor and temperature. Validation rows
        count only if there are at least ``min_samples``. A restarted client has lost
        the components and reports no rows.

        Raises
        ------
        MessageError
            The client has answered a different query before.
        """
        if message is not None:
            self._note(message)
        self._check(query, "log-losses", query.candidates[-1])
        if self._asked is None:
            nothing = torch.zeros(query.shape, dtype=torch.int64)
            none = None if self.client.weights is None else 0.0
            return LogLosses(self.client.number, 0, nothing, none)
        least, parts = self.client.settings.min_samples, self.parts(self._asked)
        rows, losses, weight = 0, [], None
        for candidate, by in zip(query.candidates, query.temperatures):
            scores = self._scores(self._asked, candidate)
            rows, sums, weight = sum_losses(scores, parts, by, least, query.floors)
            losses.append(sums.view(-1, len(by)))
        return LogLosses(self.client.number, rows, torch.cat(losses), weight)

    def confidences(self, query: OneCandidate) -> Confidences:
        """Count how sure one candidate is on the rows of `log_losses`.

        Raises
        ------
        MessageError
            The client has answered a different query before.
        """
        self._check(query, "confidences", query.candidate)
        counts = torch.zeros(CONFIDENCE_BINS, dtype=torch.int64)
        least = self.client.settings.min_samples
        if self._asked is not None:
            scores = self._scores(self._asked, query.candidate)
            for part in self.parts(self._asked):
                if part.inside.all() or len(part) >= least:
                    by, floor = query.temperature, query.floor
                    counts += left_out_confidences(scores, part, by, floor)
        if int(counts.sum()) < least:
            counts = torch.zeros_like(counts)
        return Confidences(self.client.number, counts)

    def left_out(
        self, message: LeaveOneOut, head: OneCandidate, chosen: Tensor
    ) -> Tensor:
        """The logits of the m training rows `chosen`, a mask, each left out: float64
        [m, C].

        Rows of withheld classes are in no statistics; all others score them. Raises
        what `check_head` raises.
        """
        client, scores = self.client, self.check_head(message, head)
        features, labels = chosen_rows(client.features, client.labels, chosen)
        weights = None if client.weights is None else client.weights[chosen]
        inside = client.told[labels] & head.summed
        number, domain = self._place(message)
        rows = ScoredRows(features, labels, number, domain, inside, weights)
        return left_out_logits(scores, rows, head.temperature)

    def check_head(self, message: LeaveOneOut, head: OneCandidate) -> LeftOut:
        """Require messages of which `left_out` can be computed. Returns the scores.

        Raises
        ------
        MessageError
            The components differ from those of an earlier request, or do not allow the
            head, or there is no such candidate.
        """
        client = self.client
        if client.merged is not None:
            self._asked = client.merged
        self._note(message)
        if head.candidate >= len(self.form_for(message).candidates()):
            raise self.refused(f"there is no candidate {head.candidate}", "candidate")
        self._place(message)
        return self._scores(message, head.candidate)

    @property
    def form(self) -> ClosedForm:
        """The closed form in the client's settings."""
        return self.client.settings.of(ClosedFormSettings).form

    def form_for(self, message: LeaveOneOut) -> ClosedForm:
        """The closed form whose candidates suit the components of a message."""
        form = self.form

        # The form is kept, so that no other one can get its id.
        def suited() -> tuple[ClosedForm, ClosedForm]:
            return form, form.for_components(message.components)

        return message.once(("form", id(form)), suited)[1]

    def _scores(self, message: LeaveOneOut, candidate: int | None = None) -> LeftOut:
        """The scores of left-out rows; see `LeaveOneOut.scores`."""
        try:
            return message.scores(self.form_for(message), candidate)
        except StatisticsError as error:
            raise self.refused(str(error), "components") from error

    def _check(
        self, query: LossQuery | OneCandidate, what: str, candidate: int
    ) -> None:
        """Require that the candidate exists, and that no other was asked for before."""
        if self._queries.setdefault(type(query), query) != query:
            raise self.refused(
                f"this client reported {what} before, for another candidate; it "
                "answers only once"
            )
        form = self.form if self._asked is None else self.form_for(self._asked)
        if candidate >= len(form.candidates()):
            raise self.refused(f"there is no candidate {candidate}", "candidates")
        floors = query.floors if isinstance(query, LossQuery) else (query.floor,)
        if any(floors) and not isinstance(self.client.scored_model, AverageHead):
            raise self.refused("the head of this run has no floor")

    def _note(self, message: LeaveOneOut) -> None:
        if self._asked is not None and not self._asked.equals(message):
            raise self.refused(
                "hits on left-out rows were asked for before, with other "
                "components; a client answers only once",
                "components",
            )
        self._asked = self.client.merged = message

    def parts(self, message: LeaveOneOut) -> tuple[ScoredRows, ScoredRows]:
        """The rows in the statistics, and the validation rows of the same classes."""
        client, where, is_sent = self.client, self._place(message), self.client.told

        def of_sent(
            features: Tensor, labels: Tensor, weights: Tensor | None, inside: bool
        ) -> ScoredRows:
            kept = is_sent[labels]
            everywhere = torch.full((int(kept.sum()),), inside)
            of_kept = None if weights is None else weights[kept]
            return ScoredRows(features[kept], labels[kept], *where, everywhere, of_kept)

        return (
            of_sent(client.features, client.labels, client.weights, inside=True),
            of_sent(*self._validation(), inside=False),
        )

    def _place(self, message: LeaveOneOut) -> tuple[int, int]:
        """The client's number, and the index of its domain in the components."""
        client, names = self.client, message.components.domain_names
        if client.domain not in names:
            problem = f"the client's domain {client.domain!r} is missing in {names}"
            raise self.refused(problem, "domains")
        return client.number, names.index(client.domain)

    def _validation(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The features, labels and weights of the validation rows."""
        rows, client = self.rows.get("val"), self.client
        if rows is None or not len(rows):
            none = None if client.weights is None else client.weights[:0]
            return client.features[:0], client.labels[:0], none
        return rows.features, rows.labels, rows.weights


def _weight_of(parts: Sequence[ScoredRows]) -> float | None:
    """The summed weight of all rows; None if they have no weights."""
    held = [rows.weights for rows in parts if rows.weights is not None]
    return float(torch.cat(held).sum()) if held else None


def rounded_hits(hits: Tensor, weight: float, rows: int) -> Tensor:
    """Sums of the weights of hits, rounded: exact ones tell which rows are hit.

    The unit is the power of two below a 64th of the mean weight, so that whole weights
    stay exact up to a mean of 128.

    Parameters
    ----------
    hits : Tensor of shape (candidates,), float64
    weight : float
        The summed weight of all scored rows.
    rows : int
        Their number.
    """
    if not rows:
        return hits
    unit = 2.0 ** math.floor(math.log2(weight / rows / 64))
    return ((hits / unit).round() * unit).clamp(max=weight)


def sum_losses(
    score: LeftOut,
    parts: Iterable[ScoredRows],
    by: Sequence[float],
    least: int,
    floors: Sequence[float] = FLOORS[:1],
) -> tuple[int, Tensor, float | None]:
    """Sum a client's log-losses on left-out rows; returns the rows and the sums.

    Parameters
    ----------
    score : LeftOut
    parts : iterable of ScoredRows
        First the rows in the statistics. Then other rows, which count only if there are
        at least `least`.
    by : sequence of float
        The temperatures.
    least : int
        The smallest number of rows that is reported; otherwise rows and sums are 0.
    floors : sequence of float

    Returns
    -------
    int
    Tensor of shape (candidates, len(floors) x len(by)), int64
        The summed losses, in 1/64 nat.
    float or None
        The summed weight of these rows; None if rows have no weights.
    """
    parts = list(parts)
    scored = [(part, *left_out_losses(score, part, by, floors)) for part in parts]
    counted = [one for one in scored if one[0].inside.all() or one[2] >= least]
    losses = torch.stack([losses for _, losses, *_ in counted]).sum(dim=0)
    known = sum(rows for _, _, rows, _ in counted)
    weight = sum(weight for *_, weight in counted)
    if known < least:
        known, weight, losses = 0, 0.0, torch.zeros_like(losses)
    is_weighted = any(part.weights is not None for part in parts)
    return known, in_units(losses), weight if is_weighted else None
