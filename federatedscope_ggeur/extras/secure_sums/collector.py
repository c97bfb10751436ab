"""The server's side of secure sums: it sends requests, adds up and checks."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from federatedscope_ggeur.errors import GGEURError, setting
from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.models import ClosedForm

from .messages import (
    ASKED_SETTINGS,
    MaskedRequest,
    MaskedVector,
    SumKey,
    SumKeysRequest,
)
from .settings import COUNTS, MEANS, POOLED, SummandSide, SumSettings
from .vectors import (
    SESSION_BYTES,
    MeanTotals,
    Named,
    added,
    broken,
    class_means,
    count_totals,
    mean_totals,
    pooled_statistics,
    shared_origin,
)


@dataclass(frozen=True)
class Summed:
    """The totals that the server has after the last stage.

    Attributes
    ----------
    statistics : Statistics
        The summed statistics of the named classes over all clients.
    kept_back : tuple of int
        Classes of which one client owns nearly all rows. Clients never get these means,
        since the owner could subtract its own rows.
    nearly_all : bool
        Whether one client owns nearly all rows of all classes.
    unnamed : int
        The number of rows in classes below the threshold.
    lost : int
        The number of dimensions of which only rounding is known.
    """

    statistics: Statistics
    kept_back: tuple[int, ...]
    nearly_all: bool
    unnamed: int
    lost: int

    @property
    def open_classes(self) -> list[int]:
        """The named classes whose means clients may get."""
        return [c for c in self.statistics.classes if c not in self.kept_back]

    def for_head(self, form: ClosedForm, sends_shape: bool) -> Statistics:
        """The statistics for a head that clients get.

        They leave out the classes in `kept_back` if clients could compute class means
        from the head. That is possible in three cases: clients also get a shape, the
        head's weights are nearly the means, or there are at least as many classes as
        dimensions.

        Parameters
        ----------
        form : ClosedForm
        sends_shape : bool
            Whether clients get the pooled covariance in some form.

        Raises
        ------
        GGEURError
            All classes are in `kept_back`.
        """
        held = self.statistics
        tells = sends_shape or len(held.classes) >= held.dim or form.shows_means(held)
        if not tells or not self.kept_back:
            return held
        if not self.open_classes:
            raise GGEURError(
                "round 0, secure sums: no head can be sent. Of every class one "
                "client owns nearly all rows, and would learn the rows of the "
                "others from a head. Begin again with more clients"
            )
        return self.released()

    def released(self) -> Statistics:
        """The statistics of `open_classes`.

        They have the scatter of all classes, scaled so that the covariance ``W / (N -
        C)`` stays the same.
        """
        held, kept = self.statistics, self.open_classes
        counts, means = torch.zeros_like(held.counts), torch.zeros_like(held.means)
        counts[kept], means[kept] = held.counts[kept], held.means[kept]
        if held.content == "means":
            return Statistics.of_means(counts, means)
        freedom = int(held.counts.sum()) - len(held.classes)
        share = (int(counts.sum()) - len(kept)) / freedom if freedom else 0.0
        scatter = held.scatter() * share
        return Statistics.of_pooled(counts, means, scatter=scatter)


class Collector:
    """Runs one session of secure sums on the server.

    Parameters
    ----------
    settings : SumSettings
    roster : sequence of int
        The clients whose statistics are summed.
    declared_rows : int, optional
        The number of rows that all clients declared together, if all declared theirs.
    make_session : callable () -> bytes

    Attributes
    ----------
    totals : SummandSide or None
        With a summand, its totals.

    Raises
    ------
    GGEURError
        The roster has too few clients, or the summand refuses it.
    """

    def __init__(
        self,
        settings: SumSettings,
        roster: Sequence[int],
        declared_rows: int | None = None,
        make_session: Callable[[], bytes] = lambda: secrets.token_bytes(SESSION_BYTES),
    ):
        if len(roster) < settings.min_clients:
            raise GGEURError(
                f"round 0, secure sums: {len(roster)} clients take part, but "
                f"{setting('secure_sums_min_clients')} needs {settings.min_clients}; "
                "start more clients, or lower it on all sides"
            )
        self.settings, self.roster = settings, tuple(sorted(roster))
        summand = settings.summand
        if summand is not None and (problem := summand.problem_with(self.roster)):
            raise GGEURError(f"round 0, secure sums: {problem}")
        self.session, self._declared = make_session(), declared_rows
        self._keys: dict[int, SumKey] = {}
        self._vectors: dict[int, torch.Tensor] = {}
        self._total: np.ndarray | None = None
        self._added: list[int] = []
        self._counts: np.ndarray | None = None
        self._named = Named((), ())
        self._means: MeanTotals | None = None
        self._held: Statistics | None = None
        self._summed: Statistics | None = None
        self._lost = 0
        self.totals: SummandSide | None = None
        if summand is not None:
            self.totals = summand.totals(len(roster))

    def keys_request(self) -> SumKeysRequest:
        own = {name: getattr(self.settings, name) for name in ASKED_SETTINGS}
        return SumKeysRequest(self.session, self.roster, **own)

    def take_keys(self, keys: Iterable[SumKey]) -> None:
        """Take the keys of the roster.

        Raises
        ------
        GGEURError
            Two clients have the same key.
        """
        seen: dict[bytes, int] = {}
        for one in keys:
            if one.key in seen:
                raise GGEURError(
                    f"round 0, secure sums: clients {seen[one.key]} and {one.client} "
                    "sent the same key; each client must make its own"
                )
            seen[one.key] = one.client
            self._keys[one.client] = one

    def request(self, stage: str) -> MaskedRequest:
        """The request of `stage`, the same for every client."""
        more: dict[str, Any] = {}
        if stage == MEANS:
            more["classes"] = torch.tensor(self._named.classes, dtype=torch.int64)
            more["counts"] = torch.tensor(self._named.counts, dtype=torch.int64)
            more["vectors"] = torch.stack([self._vectors[k] for k in self.roster])
        if stage == POOLED:
            assert self._means is not None, "the stage of means comes first"
            more["origin"] = shared_origin(self._means, self._named, self.settings)
        if self.totals is not None:
            more["origin"] = self.totals.origin
        keys = [self._keys[k] for k in self.roster]
        return MaskedRequest(
            session=self.session,
            stage=stage,
            roster=self.roster,
            keys=tuple(k.key for k in keys),
            commitments=tuple(k.commitment for k in keys),
            signatures=tuple(k.signature for k in keys),
            **more,
        )

    def length(self, stage: str) -> int:
        """How many numbers a client's vector has in `stage`."""
        return self.settings.length(stage, len(self._named.classes))

    def words(self, stage: str) -> int:
        """How many 64-bit words a client's vector has in `stage`."""
        return self.settings.words(stage, len(self._named.classes))

    def add(self, vectors: Iterable[MaskedVector]) -> None:
        """Add validated vectors of the current stage."""
        for one in vectors:
            ring = one.masked.numpy().view(np.uint64)
            if one.stage == COUNTS:
                self._vectors[one.client] = one.masked
            limbs = self.settings.limbs(one.stage)
            if self._total is None:
                self._total = np.zeros_like(ring)
            self._total = added(self._total, ring, limbs)
            self._added.append(one.client)

    def end(self, stage: str) -> None:
        """Evaluate the total of `stage` after all vectors have arrived.

        Raises
        ------
        GGEURError
            Vectors are missing, or the total is impossible because masks did not
            cancel.
        """
        if sorted(self._added) != list(self.roster) or self._total is None:
            missing = sorted(set(self.roster) - set(self._added))
            raise GGEURError(
                f"round 0, secure sums: stage '{stage}' lacks the vectors of clients "
                f"{missing}, so the masks do not cancel; begin the run again"
            )
        total, clients = self._total, len(self.roster)
        self._total, self._added = None, []
        if self.totals is not None:
            most = self.settings.max_rows
            if problem := self.totals.end(stage, total.view(np.int64), most):
                raise broken(stage, problem)
        elif stage == COUNTS:
            self._counts = count_totals(total, self.settings, self._declared)
            self._named = Named.of_totals(self._counts, self.settings.min_samples)
            if not self._named.classes:
                raise GGEURError(
                    f"round 0, secure sums: no class has {self.settings.min_samples} "
                    f"rows over all clients; lower {setting('min_samples')} on all "
                    "sides"
                )
        elif stage == MEANS:
            self._vectors = {}
            self._means = mean_totals(total, self._named, self.settings, clients)
            self._held = class_means(self._means, self._named, self.settings)
        else:
            assert self._means is not None, "the stage of means comes first"
            assert self._held is not None, "the stage of means comes first"
            origin = shared_origin(self._means, self._named, self.settings)
            self._summed, self._lost = pooled_statistics(
                total, self._held, origin, self.settings, clients
            )

    @property
    def nearly_all(self) -> bool:
        """Whether one client owns all but a few of the summed rows."""
        return self._means is not None and self._means.nearly_all

    def summed(self) -> Summed:
        """The totals, after the last stage."""
        assert self._means is not None, "the stage of means is not over"
        assert self._counts is not None, "the stage of counts is not over"
        held = self._held if self._summed is None else self._summed
        assert held is not None, "the last stage is not over"
        return Summed(
            held,
            self._means.kept_back,
            self._means.nearly_all,
            int(self._counts.sum()) - self._named.rows,
            self._lost,
        )
