"""How the server runs a federation."""

from __future__ import annotations

from dataclasses import dataclass, field

from federatedscope_ggeur.federation.exchanges.evaluation.scores import (
    EvaluationSettings,
)
from federatedscope_ggeur.methods import Method


@dataclass(frozen=True)
class Plan:
    """How the server runs a federation.

    Attributes
    ----------
    round0_window : int
        Clients asked at a time in round 0.
    quorum : int or None
        The run ends with an error if fewer clients are there; None means all.
    server_evaluates : bool
        Whether the server scores rows of its own. Otherwise every client scores its
        own.
    evaluation : EvaluationSettings
    screen : {"warn", "off", "refuse"}
        What happens to answers that are unlike those of all other clients.
    """

    round0_window: int
    quorum: int | None
    server_evaluates: bool
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    screen: str = "warn"

    def leaves_own(self, method: Method) -> bool:
        """Whether clients score models of their own, and leave these."""
        return method.personal and not self.server_evaluates
