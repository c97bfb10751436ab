"""What compressing the statistics has cost, as far as it can be known."""

from __future__ import annotations

from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.federation.messages import StatisticsUpload
from federatedscope_ggeur.geometry import (
    CompressionLoss,
    ErrorLimits,
    MeanStatistics,
    SummedStatistics,
)
from federatedscope_ggeur.models import ClosedForm, LinearHead, Model, to_vector
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
        self._coarser: SummedStatistics | None = None
        self._head_limit: float | None = None
        self._head_change: float | None = None

    def add(self, upload: StatisticsUpload, for_head: bool) -> None:
        """Note an upload that was compressed, and whether a head will be made."""
        held, loss, compressed = upload.statistics, upload.loss, upload.compressed
        assert loss is not None
        assert compressed is not None
        self._loss = self._loss + loss
        size = float(held.scatter().norm()) if isinstance(held, SummedStatistics) else 0
        self.uploads[upload.client] = ClientCompression(
            left_out=_share(loss.left_out, loss.energy),
            covariance_error=_share(loss.scatter, size),
            rounding_error=_share(loss.rounding, size),
            mean_error=_share(loss.means**0.5, _spread(held)),
        )
        if for_head and isinstance(held, SummedStatistics):
            coarser = compressed.coarser().restore()
            assert isinstance(coarser, SummedStatistics)
            before = self._coarser
            self._coarser = coarser if before is None else before + coarser

    def note_head(
        self, form: ClosedForm, solved: Solved, statistics: Statistics
    ) -> None:
        """Note a head in closed form, worked out from all that was added."""
        limits = self._limits(statistics)
        self._head_limit = form.error_limit(statistics, solved, limits)
        # One of clients' means cannot be worked out from the merged statistics alone.
        if self._coarser is None or not form.partition_free:
            return
        try:
            coarser = form.solve(self._coarser).model
        except StatisticsError:  # so few directions do not suffice
            return
        found, other = _weights(solved.model), _weights(coarser)
        self._head_change = _share(float((other - found).norm()), float(found.norm()))

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
            head_error_limit=self._head_limit,
            head_change_at_half_rank=self._head_change,
        )

    def _limits(self, statistics: Statistics) -> ErrorLimits:
        assert isinstance(statistics, (SummedStatistics, MeanStatistics))
        return self._loss.limits(statistics)


def _weights(model: Model) -> Tensor:
    """Weights [C, D] of a linear head, all parameters [P] of any other."""
    if isinstance(model, LinearHead):
        return model.classifier.weight.detach()
    return to_vector(model)


def _spread(statistics: Statistics) -> float:
    """Root of ``sum_c n_c |mu_c - m|^2``, m being the mean of all rows."""
    counts: Tensor = statistics.counts.double()
    origin = counts @ statistics.means / counts.sum().clamp(min=1)
    return float(counts @ (statistics.means - origin).square().sum(dim=1)) ** 0.5


def _share(part: float, whole: float) -> float | None:
    """None where there is nothing to be a share of."""
    return part / whole if whole > 0 else None
