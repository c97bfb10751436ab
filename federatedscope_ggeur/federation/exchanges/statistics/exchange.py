"""Class statistics: clients send them in round 0, the server merges them (Eq. 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from federatedscope_ggeur.federation.advice import withheld_note
from federatedscope_ggeur.federation.client import Client
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.sampling import windows
from federatedscope_ggeur.federation.wire import limits
from federatedscope_ggeur.federation.wire.declared import Declared
from federatedscope_ggeur.federation.wire.schema import MessageSchema, StatisticsForm
from federatedscope_ggeur.geometry import Statistics

from ..base import (
    ClientSide,
    Exchange,
    Request,
    RequestKind,
    Requests,
    refusal,
    register_exchange,
    require_known,
)
from . import keys
from .compression_log import CompressionLog
from .screening import Directions, Lengths
from .threshold import StatisticsSettings, apply_min_count, coarse_means
from .upload import StatisticsUpload


class StatisticsClient(ClientSide):
    """Sends statistics of the classes with enough rows."""

    def statistics(self) -> StatisticsUpload:
        """The client's upload of round 0, without classes below the threshold."""
        client = self.client
        statistics = Statistics.from_embeddings(
            client.features, client.labels, client.task.num_classes
        )
        return upload_of(client, statistics, client.task.statistics)


def upload_of(
    client: Client, statistics: Statistics, form: StatisticsForm
) -> StatisticsUpload:
    """The part of `statistics` that `client` may send."""
    allowed = apply_min_count(statistics, client.settings.min_samples)
    if client.settings.of(StatisticsSettings).float32_means:
        allowed = coarse_means(allowed)
    return StatisticsUpload.of(client.number, client.domain, allowed, form)


def longest_upload(schema: MessageSchema) -> int:
    """The size in bytes of the longest `StatisticsUpload`."""
    classes, dim, form = schema.num_classes, schema.dim, schema.statistics
    # labels, counts, ranks; means, and the row by which compression centres them
    size = 24 * classes + 8 * (classes + 1) * (dim + 1)
    if form.content == "means":
        return limits.PLAIN + size
    scatters = classes if form.content == "class" else 1
    # If squares underflow, a factor may have as many rows as columns.
    return limits.PLAIN + size + scatters * 8 * dim * (dim + 1)


def check_domain(upload: Any, exchange: Exchange) -> None:
    """Refuse statistics whose domain is not the one with which the client joined."""
    domains = exchange.server.client_domains
    require_known(upload.client, domains)
    if upload.domain != domains[upload.client]:
        raise refusal(
            upload.client,
            "domain",
            f"{upload.domain!r}, but the client joined with {domains[upload.client]!r}",
        )


def _validate(
    exchange: StatisticsExchange, request: Request, upload: StatisticsUpload
) -> None:
    """Refuse a second upload, or one of another domain."""
    server = exchange.server
    repeated = upload.client in server.merged.rows
    require_known(upload.client, server.client_domains, repeated)
    check_domain(upload, exchange)


def _bound(declared: Declared, exchange: Any, upload: StatisticsUpload) -> None:
    """Refuse statistics that exceed what the client declared when it joined.

    The number of rows, the norms of means and the spread of classes are checked. The
    spread of a class is bounded by ``tr Sigma = E|x|^2 - |mu|^2``.
    """
    held, k = upload.statistics, upload.client
    declared.check_rows(k, "counts", int(held.counts.sum()), declared.train)
    declared.check_means(k, "means", held.means)
    spread, rows = held.trace(), int(held.counts.sum())
    if spread > rows * declared.longest**2:
        rms = math.sqrt(spread / max(rows, 1))
        declared.refuse_norm(k, "scatter", "the spread of its rows", rms)


STATISTICS = RequestKind(
    name="statistics",
    message="statistics_request",
    remembered=0,
    deadline="round0",
    parts=(),
    respond=lambda side: side.statistics(),
    answer_message="statistics",
    answer=StatisticsUpload,
    validate=_validate,
    bound=_bound,
    largest=lambda exchange: longest_upload(exchange.server.schema),
)


@register_exchange("statistics")
class StatisticsExchange(Exchange):
    """Asks every training client for its class statistics, and merges them."""

    KINDS = (STATISTICS,)
    CLIENT = StatisticsClient
    KEYS = keys.KEYS
    objections = staticmethod(keys.objections)
    REVEALS = "counts, means and scatters of each client's classes"

    def __init__(self, course):
        super().__init__(course)
        self.compression = CompressionLog()
        self._lengths, self._directions = Lengths(), Directions()
        self._sizes: dict[str, int] = {}
        self._pairs = 0

    @classmethod
    def is_due(cls, demands: Demands) -> bool:
        return demands.own_statistics

    @classmethod
    def withheld_note(
        cls, counts: np.ndarray, threshold: int, domains: Sequence[str] = ()
    ) -> str:
        return withheld_note(counts, threshold, domains)

    def begin(self) -> Requests[None]:
        course = self.course
        for numbers in windows(self.server.participants, course.plan.round0_window):
            asked = dict.fromkeys(course.membership.here(numbers), ())
            uploads = yield from course.ask(STATISTICS, 0, asked, self._sizes)
            found = course.screen.refused("statistics", self._lengths.findings(uploads))
            course.put_out(found, "round 0, statistics")
            for upload in uploads:
                if upload.client not in found:
                    self.server.merged.add(upload)
        unlike = self._directions.findings()
        course.screen.refused("statistics", unlike, may_refuse=False)

    def on_statistics(self, upload: StatisticsUpload) -> None:
        self._pairs += len(upload.statistics.classes)
        self._directions.add(upload)
        if upload.loss is not None:
            self.compression.add(upload)

    def record(self) -> dict[str, Any]:
        return {
            "statistics_bytes_up": self._sizes,
            "uploaded_pairs": self._pairs,
            # a client does not tell what it withholds
            "withheld_pairs": None if self._sizes else 0,
            "compression": self.compression.record(self.server.merged.statistics),
        }
