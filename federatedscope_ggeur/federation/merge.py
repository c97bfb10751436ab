"""The one place where clients' statistics are merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.models import ClosedForm
from federatedscope_ggeur.models.closed_forms.base import Solved


@dataclass(frozen=True, eq=False)
class Release:
    """Merged statistics, and the part of them that clients may get.

    Attributes
    ----------
    statistics : Statistics
        The merged statistics of all clients.
    open : Statistics
        The part that clients may get as it is, with class means.
    for_head : callable (ClosedForm) -> Statistics
        Returns the part from which a head for clients may be made.
    hidden_by : str
        What hid the statistics of single clients from the server, such as "secure
        sums"; "" if the server saw them.
    rounding : float
        About the largest error by rounding in the statistics of a small dimension.
    lost : int
        The number of dimensions of which only rounding is known.
    finer : str
        What to do for less rounding.
    solve : callable (ClosedForm) -> Solved, or None
        Makes the head from statistics with noise, which stand in place of all others.
    """

    statistics: Statistics
    open: Statistics
    for_head: Callable[[ClosedForm], Statistics]
    hidden_by: str = ""
    rounding: float = 0.0
    lost: int = 0
    finer: str = ""
    solve: Callable[[ClosedForm], Solved] | None = None

    @classmethod
    def whole(cls, statistics: Statistics) -> Release:
        """A release in which clients may get everything."""
        return cls(statistics, statistics, lambda form: statistics)


class Merge:
    """The merged statistics. Whatever is made of statistics watches this object.

    A client that is left out here is in nothing that is made of statistics: head,
    choice among heads, temperature, space, book. It still trains.

    Parameters
    ----------
    nothing : Statistics
        The statistics of no rows, of the kind that is merged.
    watchers : sequence of Exchange
        `on_statistics` gets each upload that is added; `on_total` gets totals that were
        taken at once.

    Attributes
    ----------
    release : Release
    rows : dict from client number to int
        The merged clients, each with its number of rows; 0 if the server does not see
        that.
    """

    def __init__(self, nothing: Any, watchers: Sequence[Any] = ()):
        self.release = Release.whole(nothing)
        self.rows: dict[int, int] = {}
        self.watchers = watchers

    @property
    def statistics(self) -> Any:
        """The merged statistics of all clients so far."""
        return self.release.statistics

    def add(self, upload: Any) -> None:
        """Merge a client's upload (Eq. 4); clients come in ascending order."""
        self.rows[upload.client] = int(upload.statistics.counts.sum())
        self.release = Release.whole(self.statistics + upload.statistics)
        for one in self.watchers:
            one.on_statistics(upload)

    def take(self, release: Release, rows: Mapping[int, int]) -> None:
        """Take the totals of all clients in `rows` at once."""
        self.release, self.rows = release, dict(rows)
        if release.solve is None:
            for one in self.watchers:
                one.on_total(release.open)
