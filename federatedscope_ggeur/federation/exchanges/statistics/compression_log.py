"""Records the loss by compression of statistics, as clients report it."""

from __future__ import annotations

from torch import Tensor

from federatedscope_ggeur.geometry import CompressionLoss, Statistics
from federatedscope_ggeur.reporting import ClientCompression, CompressionRecord

from .upload import StatisticsUpload


class CompressionLog:
    """Collects compressed uploads and makes the entry for results.json.

    Attributes
    ----------
    uploads : dict from client number to ClientCompression
    """

    def __init__(self) -> None:
        self.uploads: dict[int, ClientCompression] = {}
        self._loss = CompressionLoss()

    def add(self, upload: StatisticsUpload) -> None:
        """Note a compressed upload."""
        held, loss = upload.statistics, upload.loss
        assert loss is not None, "the upload is not compressed"
        self._loss = self._loss + loss
        size = 0.0 if held.content == "means" else float(held.scatter().norm())
        self.uploads[upload.client] = ClientCompression(
            left_out=_share(loss.left_out, loss.energy),
            covariance_error=_share(loss.scatter, size),
            rounding_error=_share(loss.rounding, size),
            mean_error=_share(loss.means**0.5, _spread(held)),
        )

    def record(self, statistics: Statistics) -> CompressionRecord | None:
        """The record for the merged `statistics`; None if nothing was compressed."""
        if not self.uploads:
            return None
        left_out = None
        if statistics.content != "means":
            left_out = _share(self._loss.left_out, self._loss.energy)
        clients = {str(k): held for k, held in self.uploads.items()}
        return CompressionRecord(clients=clients, left_out=left_out)


def _spread(statistics: Statistics) -> float:
    """How far class means mu_c lie apart: the root of ``sum_c n_c |mu_c - m|^2``.

    Class c has n_c rows, and m is the mean of all rows.
    """
    counts: Tensor = statistics.counts.double()
    origin = counts @ statistics.means / counts.sum().clamp(min=1)
    return float(counts @ (statistics.means - origin).square().sum(dim=1)) ** 0.5


def _share(part: float, whole: float) -> float | None:
    """The share of `part` in `whole`; None if `whole` is 0."""
    return part / whole if whole > 0 else None
