"""Solves the one-shot head on the server."""

from __future__ import annotations

from collections.abc import Iterable

from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.models import ClosedForm
from federatedscope_ggeur.models.closed_forms import ComponentBook, Components, Solved

from ..statistics.upload import StatisticsUpload


class HeadSolver:
    """Collects the statistics that the one-shot head needs, and solves for the head.

    Parameters
    ----------
    form : ClosedForm
        The form that the settings name.
    compares : bool
        Whether rows are left out, or the run chooses between two heads.
    domains : iterable of str
        The domains of all clients.
    seed : int
    """

    def __init__(
        self, form: ClosedForm, compares: bool, domains: Iterable[str], seed: int
    ):
        self.form, self._seed, self._compares = form, seed, compares
        self._book: ComponentBook | None = None
        if self._compares or not form.partition_free:
            self._book = ComponentBook(tuple(dict.fromkeys(domains)))

    @property
    def candidates(self) -> tuple[ClosedForm, ...]:
        """The candidate forms among which clients' rows choose."""
        return self.form.candidates()

    def add(self, upload: StatisticsUpload) -> None:
        """Keep a client's upload."""
        if self._book is not None:
            self._book.add(upload.statistics, upload.client, upload.domain)

    def components(self) -> Components | None:
        """The components of all clients; None if the run does not compare heads."""
        held = self._held() if self._compares else None
        return held if held is not None and len(held.counts) else None

    def solve(self, form: ClosedForm, statistics: Statistics) -> Solved:
        """Solve `form` from the merged `statistics`; the head is on raw embeddings.

        Raises
        ------
        StatisticsError
            The statistics do not allow this head. The error says what to do.
        """
        return form.solve(statistics, self._held(), self._seed)

    def _held(self) -> Components | None:
        if self._book is None or self._book.is_empty:
            return None
        return self._book.components()
