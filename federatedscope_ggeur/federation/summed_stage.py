"""Statistics as secure sums, as the server keeps them and lets them go."""

from __future__ import annotations

from federatedscope_ggeur.federation.masking.collector import (
    Collector,
    Summed,
)
from federatedscope_ggeur.federation.masking.settings import SumSettings
from federatedscope_ggeur.federation.messages.statistics_upload import Statistics
from federatedscope_ggeur.models import ClosedForm
from federatedscope_ggeur.reporting import SumsRecord


class SummedStage:
    """What round 0 knows of secure sums; nothing where there are none.

    Parameters
    ----------
    settings : SumSettings or None

    Attributes
    ----------
    summed : Summed or None
        What the sums have given.
    """

    def __init__(self, settings: SumSettings | None):
        self._settings = settings
        self._collector: Collector | None = None
        self.summed: Summed | None = None

    @property
    def collector(self) -> Collector:
        """The session under way."""
        assert self._collector is not None, "no secure sum is under way"
        return self._collector

    @collector.setter
    def collector(self, collector: Collector) -> None:
        self._collector = collector

    def record(self) -> SumsRecord | None:
        """What is to be said of them; None where there are none."""
        if self.summed is None:
            return None
        settings, summed = self.collector.settings, self.summed
        return SumsRecord(
            list(self.collector.roster),
            settings.min_samples,
            {stage: self.collector.length(stage) for stage in settings.stages},
            summed.statistics.classes,
            list(summed.kept_back),
            summed.unnamed,
        )

    def for_head(self, form: ClosedForm, statistics: Statistics) -> Statistics:
        """What a head that goes down may be made of, in place of all `statistics`."""
        if self.summed is None or self._settings is None:
            return statistics
        return self.summed.for_head(form, self._settings.sends_shape)

    def released(self, statistics: Statistics) -> Statistics:
        """What may go down of `statistics`, means and all."""
        return statistics if self.summed is None else self.summed.released()
