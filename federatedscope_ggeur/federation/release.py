"""Which part of the merged statistics may go down to clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from federatedscope_ggeur.federation.wire.schema import Statistics
from federatedscope_ggeur.models import ClosedForm


@dataclass(frozen=True, eq=False)
class Release:
    """Merged statistics, and the part of them that may go down.

    Attributes
    ----------
    statistics : Statistics
        Those of all clients.
    open : Statistics
        The part that may go down as it is, with means.
    for_head : callable (ClosedForm) -> Statistics
        The part that a head for clients may be made of.
    """

    statistics: Statistics
    open: Statistics
    for_head: Callable[[ClosedForm], Statistics]

    @classmethod
    def whole(cls, statistics: Statistics) -> Release:
        """Everything may go down."""
        return cls(statistics, statistics, lambda form: statistics)
