"""What compressing the statistics has cost, as far as it can be known."""

from __future__ import annotations

from torch import Tensor

from federatedscope_ggeur.federation.messages import StatisticsUpload
from federatedscope_ggeur.geometry import (
    CompressionLoss,
    ErrorLimits,
    MeanStatistics,
    SummedStatistics,
)
from federatedscope_ggeur.models import ClosedForm
from federatedscope_ggeur.models.closed_forms import Solved, Statistics
from federatedscope_ggeur.reporting import ClientCompression, CompressionRecord


class CompressionLog:
    """Notes of what arrives compressed; `record` makes what results.json says of it.

    Attributes
    ----------
    uploads : dict from client number to ClientCompression
    """

    def __init__(self):
        self.uploads: dict[int, ClientCompression] = {}
        self._loss = CompressionLoss()
        self._head: float | None = None

    def add(self, upload: StatisticsUpload) -> None:
        """Note an upload that has a loss."""
        held, loss = upload.statistics, upload.loss
        assert loss is not None
        pooled = isinstance(held, SummedStatistics)
        size = float(held.scatter().norm()) if isinstance(held, SummedStatistics) else 0
        self._loss = self._loss + loss
        self.uploads[upload.client] = ClientCompression(
            left_out=_share(loss.left_out, loss.energy) if pooled else None,
            covariance_error=_share(loss.scatter, size) if pooled else None,
            rounding_error=_share(loss.rounding, size) if pooled else None,
            mean_error=_share(loss.means**0.5, _spread(held)),
        )

    def note_head(
        self, form: ClosedForm, solved: Solved, statistics: Statistics
    ) -> None:
        """Note a head in closed form, worked out from all that was added."""
        self._head = form.error_limit(statistics, solved, self._limits(statistics))

    def record(self, statistics: Statistics) -> CompressionRecord | None:
        """Of the merged `statistics`; None if nothing was compressed."""
        if not self.uploads:
            return None
        limits, loss = self._limits(statistics), self._loss
        covariance, left_out = None, None
        if isinstance(statistics, SummedStatistics):
            size = float(statistics.scatter().norm())
            covariance = _share(limits.scatter, size)
            left_out = _share(loss.left_out, loss.energy)
        return CompressionRecord(
            clients={str(k): held for k, held in self.uploads.items()},
            left_out=left_out,
            covariance_error_limit=covariance,
            mean_error_limit=_share(limits.means, _spread(statistics)),
            head_error_limit=self._head,
        )

    def _limits(self, statistics: Statistics) -> ErrorLimits:
        assert isinstance(statistics, (SummedStatistics, MeanStatistics))
        return self._loss.limits(statistics)


def _spread(statistics: Statistics) -> float:
    """Root of ``sum_c n_c |mu_c - m|^2``, m being the mean of all rows."""
    counts: Tensor = statistics.counts.double()
    origin = counts @ statistics.means / counts.sum().clamp(min=1)
    return float(counts @ (statistics.means - origin).square().sum(dim=1)) ** 0.5


def _share(part: float, whole: float) -> float | None:
    """None where there is nothing to be a share of."""
    return part / whole if whole > 0 else None
