"""Finds answers that are well formed and unlike those of all other clients.

Each client is compared with the medians of the others, at least two; half of them may
lie. Values within a few times the others' pass: clients differ in domain, rows and
steps. Each exchange says which values of its answers are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.federation.wire.declared import Declarations
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting import Finding
from federatedscope_ggeur.reporting.records import About

logger = get_logger(__name__)

#: What happens to findings.
SCREENS = ("warn", "off", "refuse")
#: Rows and aggregation weights may be so many times the others'.
ROWS = 100.0
#: A declared norm may be so many times the others'. All are powers of two.
NORM = 8.0

#: By client number: how its answer is unlike the others'.
Findings = dict[int, str]


class Screen:
    """Reports findings about clients' answers over one run, or refuses the answers.

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
        self._known: dict[tuple[int, str], Finding] = {}

    @property
    def findings(self) -> list[Finding]:
        """All that was found by now, by client."""
        return [self._known[key] for key in sorted(self._known)]

    def load(self, findings: Iterable[Finding]) -> None:
        """Go on where a run that was cut off had found these."""
        self._known = {(f.client, f.about): f for f in findings}

    def refused(self, about: About, found: Findings) -> Findings:
        """The findings to refuse. Each client's finding is logged once."""
        if self._mode == "off":
            return {}
        refuses = self._mode == "refuse"
        hint = f"; {setting('screen')}: refuse would leave it out"
        for k, reason in found.items():
            known = self._known.get((k, about))
            if known is None:
                logger.warning("client %d: %s%s", k, reason, "" if refuses else hint)
                known = Finding(k, about, reason, self.round, 1, refuses)
            elif about == "update":  # once a round; other entries stay
                known = replace(known, rounds=known.rounds + 1)
            self._known[k, about] = known
        return found if refuses else {}


def declared_findings(declared: Declarations) -> Findings:
    """Of rows and norms declared by clients that joined."""
    found: Findings = {}
    for name in ("norm", "test", "val", "train"):
        values = {k: float(getattr(d, name)) for k, d in declared.items()}
        most = NORM if name == "norm" else ROWS
        what = "norm of a row" if name == "norm" else f"number of {name} rows"
        found.update(beyond(values, most, f"the {what} that it declared"))
    return found


def beyond(values: Mapping[int, float], factor: float, what: str) -> Findings:
    """The clients whose value is above `factor` times the median of the others'."""
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
