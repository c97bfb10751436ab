"""Makes the space of training, from means and variances of clients' rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.sampling import windows
from federatedscope_ggeur.federation.wire import limits
from federatedscope_ggeur.federation.wire.declared import Declared
from federatedscope_ggeur.geometry import Statistics, Totals

from ..base import (
    ClientSide,
    Exchange,
    Request,
    RequestKind,
    Requests,
    register_exchange,
    require_known,
)
from ..statistics.threshold import StatisticsSettings
from ..statistics.upload import StatisticsUpload
from . import keys
from .maker import SpaceMaker
from .messages import SpaceBroadcast, TotalsUpload


class SpaceClient(ClientSide):
    """Sends totals of the rows about which the client may report."""

    def totals(self) -> TotalsUpload:
        client = self.client
        labels, least = client.labels, client.settings.min_samples
        sends = client.settings.demands.own_statistics
        told = rows_for_totals(labels, client.counts, least, sends)
        within, squares = 0.0, None
        if sends and client.task.statistics.content == "means":
            for c in torch.nonzero(client.told).flatten().tolist():
                own = Totals.of_rows(client.features[labels == c])
                within += own.spread
                squares = own.squares if squares is None else squares + own.squares
        totals = Totals.of_rows(client.features[told])
        if client.settings.of(StatisticsSettings).float32_means:
            totals = replace(totals, mean=totals.mean.float().double())
        return TotalsUpload(client.number, totals, within, squares)


def rows_for_totals(
    labels: Tensor, counts: Tensor, min_samples: int, after_statistics: bool
) -> Tensor:
    """The rows that a client's totals may cover: a mask of shape (n,), bool.

    Withheld rows are those of classes with fewer than `min_samples` rows. Totals cover
    all withheld rows if there are at least `min_samples`, and none otherwise. This
    protects small groups of rows: the server may know sums over the other classes from
    statistics or from messages of a method. The total minus these sums is the sum of
    the withheld rows. If statistics are sent, totals leave out the rows in the
    statistics.

    Parameters
    ----------
    labels : Tensor of shape (n,), int64
    counts : Tensor of shape (C,), int64
        The client's rows of each class.
    min_samples : int
    after_statistics : bool
        Whether class statistics are sent in round 0.
    """
    withheld = (counts < min_samples)[labels]
    told = withheld.new_full(labels.shape, not after_statistics) & ~withheld
    return told | withheld if int(withheld.sum()) >= min_samples else told


def _validate(exchange: SpaceExchange, request: Request, upload: TotalsUpload) -> None:
    """Refuse a second upload, and one of an unknown client."""
    repeated = upload.client in exchange.maker.told
    require_known(upload.client, exchange.server.client_domains, repeated)


def _bound(declared: Declared, exchange: Any, upload: TotalsUpload) -> None:
    """Refuse totals of more or longer rows than the client declared."""
    totals, k = upload.totals, upload.client
    declared.check_rows(k, "count", totals.count, declared.train)
    if totals.count and float(totals.mean.norm()) > declared.longest:
        norm = float(totals.mean.norm())
        declared.refuse_norm(k, "mean", "the mean of its rows", norm)
    for name, spread in (("spread", totals.spread), ("within", upload.within)):
        if spread > declared.train * declared.longest**2:
            rms = math.sqrt(spread / max(declared.train, 1))
            declared.refuse_norm(k, name, "the spread of its rows", rms)


TOTALS = RequestKind(
    name="totals",
    message="totals_request",
    deadline="round0",
    parts=(),
    respond=lambda side: side.totals(),
    answer_message="totals",
    answer=TotalsUpload,
    validate=_validate,
    bound=_bound,
    largest=lambda exchange: limits.PLAIN + 3 * 8 * exchange.server.schema.dim,
)


@register_exchange("space")
class SpaceExchange(Exchange):
    """Makes the space. It asks clients for totals if statistics do not give them.

    Attributes
    ----------
    maker : SpaceMaker
    """

    KINDS = (TOTALS,)
    CLIENT = SpaceClient
    KEYS = keys.KEYS
    REVEALS = "the mean and the variances of each client's rows"

    def __init__(self, course):
        super().__init__(course)
        self.maker = SpaceMaker(self.server.task.space, self.server.task.dim)
        self._bytes_up = 0

    @classmethod
    def is_due(cls, demands: Demands) -> bool:
        return demands.shares_space

    @classmethod
    def answered(cls, demands: Demands) -> tuple[RequestKind, ...]:
        return cls.KINDS if demands.totals else ()

    def on_statistics(self, upload: StatisticsUpload) -> None:
        self.maker.add_statistics(upload.statistics)

    def on_total(self, statistics: Statistics) -> None:
        self.maker.add_statistics(statistics)

    def begin(self) -> Requests[None]:
        """Make the space from the clients' answers.

        Raises
        ------
        StatisticsError
            The statistics do not suffice for a whitened space.
        """
        course, server = self.course, self.server
        if not server.trains:
            return
        before = course.spent()
        if server.settings.demands.totals:
            for numbers in windows(server.participants, course.plan.round0_window):
                here = course.membership.here(numbers)
                if server.settings.demands.own_statistics:
                    here = [k for k in here if k in server.merged.rows]
                asked = dict.fromkeys(here, ())
                self.maker.add((yield from course.ask(TOTALS, 0, asked)))
        self._bytes_up = (course.spent() - before).up
        server.train_in(self.maker.make(server.merged.release.open))

    def record(self) -> dict[str, Any]:
        return {"totals_bytes_up": self._bytes_up}

    def kept(self) -> dict[str, Tensor]:
        if self.server.space.is_raw:
            return {}
        sent = np.frombuffer(SpaceBroadcast(self.server.space).to_bytes(), np.uint8)
        return {"sent": torch.from_numpy(sent.copy())}

    def resume(self, tensors: Mapping[str, Tensor]) -> None:
        if "sent" in tensors:
            data = tensors["sent"].numpy().tobytes()
            sent = SpaceBroadcast.from_bytes(data, self.server.schema)
            self.server.space = sent.space
