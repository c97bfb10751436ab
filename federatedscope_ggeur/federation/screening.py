"""Finds valid answers that differ much from the answers of all other clients.

Each client is compared with the median of the others, of whom there must be at least
two. The median holds even if almost half of the others lie. A value passes if it is at
most a few times the median, since clients differ in domain, rows and steps. Each
exchange says which values of its answers are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting import Finding
from federatedscope_ggeur.reporting.records import About

from .wire.schema import Declarations

logger = get_logger(__name__)

#: What happens to findings.
SCREENS = ("warn", "off", "refuse")
#: The largest usual ratio of a client's rows or aggregation weight to the others'.
ROWS = 100.0
#: The largest usual ratio of a declared norm to the others'; all are powers of two.
NORM = 8.0

#: By client number: how the client's answer differs from the others'.
Findings = dict[int, str]


class Screen:
    """Reports, or refuses, the unusual answers of one run.

    Parameters
    ----------
    mode : {"warn", "off", "refuse"}

    Attributes
    ----------
    round : int
        The present round; 0 before training.
    """

    def __init__(self, mode: str):
        self._mode, self.round = mode, 0
        self._known: dict[tuple[int, str], Finding] = {}

    @property
    def findings(self) -> list[Finding]:
        """All findings so far, sorted by client."""
        return [self._known[key] for key in sorted(self._known)]

    def load(self, findings: Iterable[Finding]) -> None:
        """Take over the findings of an interrupted run."""
        self._known = {(f.client, f.about): f for f in findings}

    def refused(
        self, about: About, findings: Findings, may_refuse: bool = True
    ) -> Findings:
        """Log new findings and return those whose answers are to be refused.

        A finding is logged once for each client. `may_refuse` says whether its answer
        can still be left out.
        """
        if self._mode == "off":
            return {}
        refuses = self._mode == "refuse" and may_refuse
        hint = ""
        if may_refuse:
            hint = (
                f"; to leave such answers out, set {setting('screen')}: refuse, and "
                f"{setting('quorum')} below the number of clients"
            )
        for k, reason in findings.items():
            known = self._known.get((k, about))
            if known is None:
                logger.warning("client %d: %s%s", k, reason, "" if refuses else hint)
                known = Finding(k, about, reason, self.round, 1, refuses)
            elif about == "update":  # once a round; other entries stay
                known = replace(known, rounds=known.rounds + 1)
            self._known[k, about] = known
        return findings if refuses else {}


def declared_findings(declared: Declarations) -> Findings:
    """The findings about rows and norms that clients declared when they joined."""
    findings: Findings = {}
    for name in ("norm", "test", "val", "train"):
        values = {k: float(getattr(d, name)) for k, d in declared.items()}
        most = NORM if name == "norm" else ROWS
        what = "norm of a row" if name == "norm" else f"number of {name} rows"
        findings.update(beyond(values, most, f"the {what} that it declared"))
    return findings


def beyond(values: Mapping[int, float], factor: float, what: str) -> Findings:
    """The clients whose value exceeds `factor` times the median of the others."""
    findings: Findings = {}
    if len(values) < 3:
        return findings
    order = sorted(values.values())
    for k, value in values.items():
        if not value > factor * order[(len(order) - 1) // 2]:
            continue  # without its own value the median is no lower than this
        median = float(np.median([v for j, v in values.items() if j != k]))
        if median > 0 and value > factor * median:
            findings[k] = (
                f"{what} is {value:.4g}, {value / median:.2g} times the median of "
                f"the other clients ({median:.4g})"
            )
    return findings
