"""Class statistics: clients send them in round 0, the server merges them (Eq. 4).

Finds class statistics that are far larger than those of all other clients.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from federatedscope_ggeur.federation.client import Client
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.sampling import windows
from federatedscope_ggeur.federation.screening import Findings
from federatedscope_ggeur.federation.wire import schema as limits
from federatedscope_ggeur.federation.wire.schema import (
    Declared,
    MessageSchema,
    StatisticsForm,
)
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
from .steps import Threshold
from .upload import StatisticsUpload

#: The largest usual ratio of a mean or a standard deviation to the others' rows.
LENGTH = 5.0
# the number of clients whose statistics are stored for comparison
_KEPT = 64
#: Clients are compared if they share so many classes.
_SHARED = 3
#: Agreements of class means, from 0 to 1. Domains of PACS agree by 0.24 or more, and
#: rows with their columns reversed by 0.03 at most.
_AGREES, _AGREES_WITH_NOBODY = 0.2, 0.1


class Lengths:
    """Collects the norms of clients' class means and spreads over one run."""

    def __init__(self) -> None:
        self._lengths: deque[tuple[int, np.ndarray]] = deque(maxlen=_KEPT)

    def findings(self, uploads: Iterable[StatisticsUpload]) -> Findings:
        """Compare uploads with earlier uploads and with each other."""
        new = [(upload.client, _lengths(upload)) for upload in uploads]
        reasons: Findings = {}
        for k, (means, spreads) in new:
            others = [held for j, held in self._lengths if j != k]
            others += [np.hypot(*held) for j, held in new if j != k]
            reason = _too_long(means, spreads, others)
            if reason:
                reasons[k] = reason
        self._lengths.extend((k, np.hypot(*h)) for k, h in new if k not in reasons)
        return reasons


class Directions:
    """Collects clients' class means, to find a client whose rows are of another kind.

    Two clients are compared by the classes that they share. A direction is the
    difference of a class mean from the mean of these means. The mean cosine of the
    directions is near 0 if one client has its columns in another order, or another
    encoder. Domains differ less. The sign does not count: images may be inverted.
    """

    def __init__(self) -> None:
        self._means: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def add(self, upload: StatisticsUpload) -> None:
        if len(self._means) < _KEPT and len(upload.statistics.classes) >= _SHARED:
            held = upload.statistics
            there = held.counts.numpy() > 0
            self._means[upload.client] = there, held.means.numpy().astype(np.float32)

    def findings(self) -> Findings:
        """The clients that agree with nobody, if others agree with each other."""
        best: dict[int, float] = {}
        for (j, one), (k, other) in combinations(self._means.items(), 2):
            agreement = _agreement(one, other)
            if agreement is not None:
                best[j] = max(best.get(j, 0.0), agreement)
                best[k] = max(best.get(k, 0.0), agreement)
        usual = [value for value in best.values() if value >= _AGREES]
        if len(usual) < 2:
            return {}
        return {
            k: (
                f"the directions of its class means agree with nobody's ({value:.2f}; "
                f"others: {min(usual):.2f} or more), so its rows may be of another "
                "encoder, or its columns in another order"
            )
            for k, value in best.items()
            if value < _AGREES_WITH_NOBODY
        }


def _agreement(
    one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]
) -> float | None:
    """The size of the mean cosine over shared classes; None if they are too few."""
    shared = one[0] & other[0]
    if shared.sum() < _SHARED:
        return None
    a, b = (means[shared] - means[shared].mean(axis=0) for _, means in (one, other))
    sizes = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines = np.einsum("cd,cd->c", a, b) / np.where(sizes > 0, sizes, 1.0)
    return abs(float(cosines.mean()))


def _lengths(upload: StatisticsUpload) -> tuple[np.ndarray, np.ndarray]:
    """The norms of class means [C] and of class spreads [C]; NaN for missing classes.

    A spread is the standard deviation over all directions.
    """
    held = upload.statistics
    means = held.means.norm(dim=1).numpy()
    spreads = np.zeros_like(means)
    if held.content == "class":
        for c in held.classes:
            spreads[c] = (held.trace_of(c) / float(held.counts[c])) ** 0.5
    elif held.classes:
        spreads[:] = (held.trace() / float(held.counts.sum())) ** 0.5
    absent = held.counts.numpy() == 0
    return np.where(absent, np.nan, means), np.where(absent, np.nan, spreads)


def _too_long(
    means: np.ndarray, spreads: np.ndarray, others: Sequence[np.ndarray]
) -> str:
    """A text about a class that is far larger than others' rows; "" if none is."""
    usual = [rows for rows in others if not np.isnan(rows).all()]
    if len(usual) < 2:
        return ""
    stacked = np.stack(usual)
    held = (~np.isnan(stacked)).sum(axis=0)
    overall = float(np.nanmedian([np.nanmedian(rows) for rows in stacked]))
    for c in np.flatnonzero(~np.isnan(means)):
        by_class = stacked[:, c][~np.isnan(stacked[:, c])]
        median = float(np.median(by_class)) if held[c] > 1 else overall
        limit = LENGTH * max(median, overall)
        for what, value in (("mean", means[c]), ("standard deviation", spreads[c])):
            if median > 0 and value > limit:
                return (
                    f"the {what} of its class {c} has the norm {value:.3g}, but the "
                    f"median norm of other clients' rows is {median:.3g}"
                )
    return ""


class StatisticsClient(ClientSide):
    """Sends statistics, after the client's steps."""

    def statistics(self) -> StatisticsUpload:
        """The client's upload of round 0."""
        client = self.client
        statistics = Statistics.from_embeddings(
            client.features, client.labels, client.task.num_classes, client.weights
        )
        return upload_of(client, statistics, client.task.statistics)


def upload_of(
    client: Client, statistics: Statistics, form: StatisticsForm
) -> StatisticsUpload:
    """What leaves of a client's statistics, after the steps of `form`.

    Raises
    ------
    ValueError
        The first step is not the client's threshold.
    """
    least = client.settings.min_samples
    if least > 1 and form.steps[:1] != (Threshold(least),):
        raise ValueError(f"the first step of the statistics must be Threshold({least})")
    leaving = form.leave(statistics)
    return StatisticsUpload(client.number, client.domain, leaving, form)


def longest_upload(schema: MessageSchema) -> int:
    """The size in bytes of the longest `StatisticsUpload`."""
    classes, dim, form = schema.num_classes, schema.dim, schema.statistics
    # labels, counts, ranks, weights; means, and the row by which compression centres
    size = 32 * classes + 8 * (classes + 1) * (dim + 1)
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
    spread, rows = held.trace(), float(held.weights.sum())
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
    TAKES_WEIGHTS = True
    SETTINGS = keys.StatisticsKeys
    objections = staticmethod(keys.objections)
    REVEALS = "counts, means and scatters of each client's classes"

    def __init__(self, course):
        super().__init__(course)
        self._lengths, self._directions = Lengths(), Directions()
        self._sizes: dict[str, int] = {}
        self._pairs = 0

    @classmethod
    def is_due(cls, demands: Demands) -> bool:
        return demands.own_statistics

    def begin(self) -> Requests[None]:
        course = self.course
        for numbers in windows(self.server.participants, course.plan.round0_window):
            asked = dict.fromkeys(course.membership.here(numbers), ())
            uploads = yield from course.ask(STATISTICS, 0, asked, self._sizes)
            refused = course.screen.refused(
                "statistics", self._lengths.findings(uploads)
            )
            course.put_out(refused, "round 0, statistics")
            for upload in uploads:
                if upload.client not in refused:
                    self.server.merged.add(upload)
        unlike = self._directions.findings()
        course.screen.refused("statistics", unlike, may_refuse=False)

    def on_statistics(self, upload: StatisticsUpload) -> None:
        self._pairs += len(upload.statistics.classes)
        self._directions.add(upload)

    def record(self) -> dict[str, Any]:
        return {
            "statistics_bytes_up": self._sizes,
            "uploaded_pairs": self._pairs,
            # a client does not tell what it withholds
            "withheld_pairs": None if self._sizes else 0,
        }
