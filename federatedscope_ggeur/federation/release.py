"""What of the merged statistics may go down to clients."""

from __future__ import annotations

from federatedscope_ggeur.federation.wire.schema import Statistics
from federatedscope_ggeur.models import ClosedForm


class Release:
    """All of it may, unless an exchange says otherwise.

    Parameters
    ----------
    statistics : Statistics
        Those of all clients.
    """

    def __init__(self, statistics: Statistics):
        self.statistics = statistics

    def for_head(self, form: ClosedForm) -> Statistics:
        """What a head of `form` that goes down may be made of."""
        return self.statistics

    def all(self) -> Statistics:
        """What may go down itself, means and all."""
        return self.statistics
