"""The settings by which the server runs a federation."""

from __future__ import annotations

from dataclasses import dataclass, field

from federatedscope_ggeur.methods import Method

from ..exchanges.evaluation.scores import EvaluationSettings


@dataclass(frozen=True)
class Plan:
    """The settings by which the server runs a federation.

    Attributes
    ----------
    round0_window : int
        How many clients are asked at a time in round 0.
    quorum : int or None
        The run ends with an error if fewer clients are present; None means all.
    server_evaluates : bool
        Whether the server scores rows of its own. Otherwise every client scores its
        own.
    evaluation : EvaluationSettings
    screen : {"warn", "off", "refuse"}
        What happens to answers that differ much from those of all other clients.
    """

    round0_window: int
    quorum: int | None
    server_evaluates: bool
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    screen: str = "warn"

    def leaves_own(self, method: Method) -> bool:
        """Whether each client scores and leaves a model of its own."""
        return method.personal and not self.server_evaluates
