"""What a client declares of its data when it joins, and bounds on what it may send."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.evaluation import SPLITS
from federatedscope_ggeur.federation.messages import wire
from federatedscope_ggeur.federation.messages.leave_one_out import HitCounts
from federatedscope_ggeur.federation.messages.payloads import PrepareReply, ScoreReport
from federatedscope_ggeur.federation.messages.space import TotalsUpload
from federatedscope_ggeur.federation.messages.statistics_upload import StatisticsUpload
from federatedscope_ggeur.geometry import LARGEST_EMBEDDING, MeanStatistics

# Room for what rounding, and compression, add to a norm or a trace.
_SLACK = 1.05
_CHUNK = 4096


@dataclass(frozen=True)
class Declared:
    """Rows by split, and how long an embedding is.

    Attributes
    ----------
    train, val, test : int
        Rows.
    norm : float
        A power of two that no training row's norm is above: of a single row it tells
        no more than that. 0 without rows.
    """

    train: int = 0
    val: int = 0
    test: int = 0
    norm: float = 0.0

    @classmethod
    def of(cls, train: Tensor, val: int, test: int) -> Declared:
        """Of training rows [n, D] and the numbers of the others."""
        longest = 0.0
        for rows in train.split(_CHUNK):
            longest = max([longest, *rows.double().norm(dim=1).tolist()])
        norm = 2.0 ** math.ceil(math.log2(longest)) if longest > 0 else 0.0
        return cls(len(train), val, test, norm)

    def numbers(self) -> dict[str, float]:
        """The fields as plain values for a message's header."""
        rows = {f"rows_{name}": getattr(self, name) for name in SPLITS}
        return {**rows, "norm": self.norm}

    @classmethod
    def of_message(cls, message: wire.Message) -> Declared:
        """What `numbers` put into a message; `MessageError` where it is not there."""
        train, val, test = (message.integer(f"rows_{name}") for name in SPLITS)
        largest = 2.0 * LARGEST_EMBEDDING * 2**20
        return cls(train, val, test, message.number("norm", largest))

    # what answers may hold; each raises MessageError where one holds more

    def check_statistics(self, upload: StatisticsUpload) -> None:
        """No more rows than there are, no mean beyond the norm, and no wider than
        ``tr Sigma = E|x|^2 - |mu|^2``."""
        held, k = upload.statistics, upload.client
        self._check_rows(k, "counts", int(held.counts.sum()), self.train)
        norms = held.means.norm(dim=1)
        most = self.norm * _SLACK
        if len(norms) and float(norms.max()) > most:
            c = int(norms.argmax())
            self._refuse(k, "means", f"the mean of class {c}", float(norms[c]))
        if isinstance(held, MeanStatistics):
            return
        spread, rows = held.trace(), int(held.counts.sum())
        if spread > rows * most**2:
            rms = math.sqrt(spread / max(rows, 1))
            self._refuse(k, "scatter", "the spread of its rows", rms)

    def check_calibration(self, upload: StatisticsUpload) -> None:
        """No more rows than there are; of what a layer takes in nothing is declared."""
        rows = int(upload.statistics.counts.sum())
        self._check_rows(upload.client, "counts", rows, self.train)

    def check_totals(self, upload: TotalsUpload) -> None:
        """The same of totals."""
        totals, k = upload.totals, upload.client
        self._check_rows(k, "count", totals.count, self.train)
        most = self.norm * _SLACK
        if totals.count and float(totals.mean.norm()) > most:
            self._refuse(k, "mean", "the mean of its rows", float(totals.mean.norm()))
        for name, spread in (("spread", totals.spread), ("within", upload.within)):
            if spread > self.train * most**2:
                rms = math.sqrt(spread / max(self.train, 1))
                self._refuse(k, name, "the spread of its rows", rms)

    def check_hits(self, counts: HitCounts) -> None:
        """No more rows than it trains and validates on."""
        self._check_rows(counts.client, "rows", counts.rows, self.train + self.val)

    def check_weight(self, reply: PrepareReply, is_own_rows: bool) -> None:
        """Where rows of its own are what counts, no more than there are."""
        weight = reply.aggregation_weight
        if is_own_rows and weight > self.train:
            self._check_rows(reply.client, "aggregation_weight", weight, self.train)

    def check_scores(self, report: ScoreReport) -> None:
        """No split with more rows than were declared."""
        for split, score in report.scores.items():
            declared = getattr(self, split)
            self._check_rows(report.client, f"{split}_total", score.total, declared)

    def _check_rows(self, client: int, field: str, rows: float, declared: int) -> None:
        if rows > declared:
            raise MessageError(
                f"{rows:g} rows, but it declared {declared} when it joined",
                field=field,
                sender=f"client {client}",
            )

    def _refuse(self, client: int, field: str, what: str, norm: float) -> None:
        raise MessageError(
            f"{what} has the norm {norm:.3g}, but when it joined it declared that no "
            f"row has one above {self.norm:g}",
            field=field,
            sender=f"client {client}",
        )


#: Of the clients that joined; none where all are in this process.
Declarations = Mapping[int, Declared]
