"""How a federation is carried out."""

from __future__ import annotations

from dataclasses import dataclass, field

from federatedscope_ggeur.federation.exchanges.evaluation.scores import (
    EvaluationSettings,
)
from federatedscope_ggeur.methods import Method


@dataclass(frozen=True)
class Plan:
    """How a federation is carried out.

    Attributes
    ----------
    round0_window : int
        Clients asked at a time in round 0.
    quorum : int or None
        The run ends with an error when fewer clients are there; None: than all.
    server_evaluates : bool
        The server scores rows of its own; else every client scores its own.
    evaluation : EvaluationSettings
    screen : {"warn", "off", "refuse"}
        What becomes of what is unlike all that the other clients send.
    """

    round0_window: int
    quorum: int | None
    server_evaluates: bool
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    screen: str = "warn"

    def leaves_own(self, method: Method) -> bool:
        """Whether clients score models of their own, which are then what they leave."""
        return method.personal and not self.server_evaluates
