"""What is well formed and unlike all that the other clients send: said, or refused.

One client is compared with the medians of the others, of which half may lie. It takes
two others at least, and says nothing of what lies within a few times what they send:
clients differ by domain, by rows and by steps.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.federation.messages import (
    ClientUpdate,
    PrepareReply,
    StatisticsUpload,
)
from federatedscope_ggeur.federation.messages.declared import Declarations
from federatedscope_ggeur.geometry import ClassStatistics, MeanStatistics
from federatedscope_ggeur.reporting import Finding
from federatedscope_ggeur.reporting.records import About

logger = logging.getLogger(__name__)

#: What becomes of what is found.
SCREENS = ("warn", "off", "refuse")
#: A mean, or a standard deviation, may be so many times as long as the others' rows.
LENGTH = 5.0
#: An update may be so many times as long as the others', or as long as the weights that
#: it starts from: near the end of training most are short, and honest ones vary.
UPDATE = 10.0
#: Rows, and what a client counts for, may be so many times the others'.
ROWS = 100.0
#: A declared norm may be so many times the others'; all are powers of two.
NORM = 8.0
# Clients whose statistics are kept to compare others with.
_KEPT = 64

Findings = dict[int, str]

#: What secure sums keep from everyone who screens.
BLIND_TO_SUMS = (
    "secure sums: nobody sees a single client's statistics, so none can be screened: "
    "one client can spoil the sum, and nobody can tell which"
)


class Screen:
    """Compares what clients send, over one run.

    Parameters
    ----------
    mode : {"warn", "off", "refuse"}

    Attributes
    ----------
    round : int
        The round that is under way; 0 before training.
    """

    def __init__(self, mode: str = "warn"):
        self._mode, self.round = mode, 0
        self._lengths: deque[tuple[int, np.ndarray]] = deque(maxlen=_KEPT)
        self._known: dict[tuple[int, str], Finding] = {}

    @property
    def findings(self) -> list[Finding]:
        """All that was found by now, by client."""
        return [self._known[key] for key in sorted(self._known)]

    def load(self, findings: Iterable[Finding]) -> None:
        """Go on where a run that was cut off had found these."""
        self._known = {(f.client, f.about): f for f in findings}

    def declared(self, declared: Declarations) -> Findings:
        """Of rows and norms declared by clients that joined."""
        found: Findings = {}
        for name in ("norm", "test", "val", "train"):
            values = {k: float(getattr(d, name)) for k, d in declared.items()}
            most = NORM if name == "norm" else ROWS
            what = "norm of a row" if name == "norm" else f"number of {name} rows"
            found.update(_beyond(values, most, f"the {what} that it declared"))
        return self._found("declared", found)

    def statistics(self, uploads: Iterable[StatisticsUpload]) -> Findings:
        """Of class statistics: means and spreads, with those of the clients before,
        and with those of the same window."""
        new = [(upload.client, _lengths(upload)) for upload in uploads]
        found: Findings = {}
        for k, (means, spreads) in new:
            others = [held for j, held in self._lengths if j != k]
            others += [np.hypot(*held) for j, held in new if j != k]
            reason = _too_long(means, spreads, others)
            if reason:
                found[k] = reason
        self._lengths.extend((k, np.hypot(*h)) for k, h in new if k not in found)
        return self._found("statistics", found)

    def weights(self, replies: Iterable[PrepareReply]) -> Findings:
        """Of what clients count for in averages."""
        weights = {reply.client: reply.aggregation_weight for reply in replies}
        found = _beyond(weights, ROWS, "what it counts for")
        return self._found("weight", found)

    def updates(
        self,
        updates: Sequence[ClientUpdate],
        params: Tensor,
        trained: Callable[[Tensor], Tensor] = lambda params: params,
    ) -> Findings:
        """Of the lengths of a round's updates, from the weights sent down, of which
        `trained` gives those that are trained."""
        size = len(params)
        params = trained(params).double()
        lengths = {
            u.client: float((trained(u.params).double() - params).norm())
            for u in updates
            if size and len(u.params) == size
        }
        start = float(params.norm())
        found = _beyond(lengths, UPDATE, "the length of its update")
        found = {k: reason for k, reason in found.items() if lengths[k] > start}
        return self._found("update", found)

    def _found(self, about: About, found: Findings) -> Findings:
        """What is to be refused of `found`; all is said, once for each client."""
        if self._mode == "off":
            return {}
        refuses = self._mode == "refuse"
        hint = f"; {setting('screen')}: refuse would leave it out"
        for k, reason in found.items():
            known = self._known.get((k, about))
            if known is None:
                logger.warning("client %d: %s%s", k, reason, "" if refuses else hint)
                known = Finding(k, about, reason, self.round, 1, refuses)
            elif about == "update":  # once a round; what else there is stays as it is
                known = replace(known, rounds=known.rounds + 1)
            self._known[k, about] = known
        return found if refuses else {}


def _beyond(values: Mapping[int, float], factor: float, what: str) -> Findings:
    """Whose value is above `factor` times the median of the others'."""
    found: Findings = {}
    if len(values) < 3:
        return found
    order = sorted(values.values())
    for k, value in values.items():
        if not value > factor * order[(len(order) - 1) // 2]:
            continue  # without its own value the median is no lower than this
        median = float(np.median([v for j, v in values.items() if j != k]))
        if median > 0 and value > factor * median:
            found[k] = (
                f"{what} is {value:.4g}, {value / median:.2g} times the median of the "
                f"others' ({median:.4g})"
            )
    return found


def _lengths(upload: StatisticsUpload) -> tuple[np.ndarray, np.ndarray]:
    """Norms of the class means [C] and standard deviations [C], all directions in one;
    NaN of classes that are not there."""
    held = upload.statistics
    means = held.means.norm(dim=1).numpy()
    spreads = np.zeros_like(means)
    if isinstance(held, ClassStatistics):
        for c in held.classes:
            spreads[c] = (held.trace_of(c) / float(held.counts[c])) ** 0.5
    elif not isinstance(held, MeanStatistics) and held.classes:
        spreads[:] = (held.trace() / float(held.counts.sum())) ** 0.5
    absent = held.counts.numpy() == 0
    return np.where(absent, np.nan, means), np.where(absent, np.nan, spreads)


def _too_long(
    means: np.ndarray, spreads: np.ndarray, others: Sequence[np.ndarray]
) -> str:
    """Which class of a client is far longer than the others' rows; "" where none."""
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
                    f"the {what} of its class {c} is {value:.3g} long, where the rows "
                    f"of others are {median:.3g} (median)"
                )
    return ""


def shares(weights: Mapping[int, float]) -> dict[int, float]:
    """Each client's share of an average by `weights`; 0 where all are 0."""
    total = sum(weights.values())
    return {k: weight / total if total else 0.0 for k, weight in weights.items()}


def capped(weights: Mapping[int, float], most: float) -> dict[int, float]:
    """The same weights, the largest cut to one value so that no share of their sum is
    above `most`; equal ones where so few clients cannot do with so little.

    With t for that value and m clients cut to it, ``t = most (m t + rest)``.
    """
    order = sorted((w for w in weights.values() if w > 0), reverse=True)
    if most >= 1 or not order or order[0] <= most * sum(order):
        return dict(weights)
    for cut in range(1, len(order)):
        if cut * most >= 1:
            break
        limit = most * sum(order[cut:]) / (1 - cut * most)
        if order[cut] <= limit:
            return {k: min(w, limit) for k, w in weights.items()}
    return {k: float(w > 0) for k, w in weights.items()}


def log_largest_share(
    replies: Iterable[PrepareReply], ignore_weight: bool, most: float
) -> None:
    """Say which client counts for most in an average over all of them."""
    weights = {r.client: r.aggregation_weight for r in replies}
    if ignore_weight:
        weights = {k: float(w > 0) for k, w in weights.items()}
    parts = shares(capped(weights, most))
    client = max(parts, key=lambda k: parts[k], default=None)
    if client is not None and len(parts) > 1:
        logger.info(
            "client %d counts for most in an average over all clients: %.1f%% of it",
            client,
            100 * parts[client],
        )
