"""How a federation is carried out."""

from __future__ import annotations

from dataclasses import dataclass, field

from federatedscope_ggeur.federation.exchanges.evaluation.scores import (
    EvaluationSettings,
)


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
