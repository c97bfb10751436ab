"""What of the merged statistics may go down to clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from federatedscope_ggeur.federation.wire.schema import Statistics
from federatedscope_ggeur.models import ClosedForm


@dataclass(frozen=True, eq=False)
class Release:
    """Merged statistics, and what of them may go down.

    Attributes
    ----------
    statistics : Statistics
        Those of all clients.
    open : Statistics
        What may go down itself, means and all.
    for_head : callable (ClosedForm) -> Statistics
        What a head that goes down may be made of.
    """

    statistics: Statistics
    open: Statistics
    for_head: Callable[[ClosedForm], Statistics]

    @classmethod
    def whole(cls, statistics: Statistics) -> Release:
        """All of them may."""
        return cls(statistics, statistics, lambda form: statistics)
