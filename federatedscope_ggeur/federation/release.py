"""The part of the merged statistics that clients may get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from federatedscope_ggeur.models import ClosedForm

from .wire.schema import Statistics


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
    """

    statistics: Statistics
    open: Statistics
    for_head: Callable[[ClosedForm], Statistics]

    @classmethod
    def whole(cls, statistics: Statistics) -> Release:
        """A release in which clients may get everything."""
        return cls(statistics, statistics, lambda form: statistics)
