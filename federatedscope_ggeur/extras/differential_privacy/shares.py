"""Shares of noise: what clients add under the masks with differential privacy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.extras.secure_sums.settings import register_summand
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.base import RunFacts
from federatedscope_ggeur.reporting import Privacy

from .exchange import SPENT, NoisyReleaseExchange
from .keys import UNIT, is_chosen
from .noise import NoiseSettings, Releaser, too_few_honest
from .noisy_release import MOMENTS, RELEASE_STAGES, NoisyStatistics

_SEEN = "the sum of all clients' statistics with noise"
_MADE_UP = "a server that makes up keys or clients can take the noise of others away"


@register_summand
@dataclass(frozen=True)
class NoisyShares:
    """Noisy statistics, of which each client adds a share of the noise.

    Sums hold no exact number then. So no threshold is needed, and no class is kept
    back.
    """

    noise: NoiseSettings

    STAGES = RELEASE_STAGES
    AFTER_LOSS = SPENT

    @classmethod
    def is_due(cls, run: Demands) -> bool:
        return is_chosen(run.chosen)

    @classmethod
    def of(cls, run: RunFacts) -> NoisyShares:
        return cls(NoisyReleaseExchange.settings_of(run))

    @staticmethod
    def privacy(before: Privacy, keys: str, by_server: bool) -> Privacy:
        said = list(before.warnings)
        if by_server:  # behind what holds of every release
            said.insert(said.index(UNIT) + 1, _MADE_UP)
        seen = [_SEEN, *before.server_sees]
        return replace(before, keys=keys, server_sees=seen, warnings=said)

    def length(self, stage: str) -> int:
        return self.noise.plan.length(stage)

    def problem_with(self, roster: Sequence[int]) -> str:
        clients, most = len(roster), self.noise.most_clients
        if problem := too_few_honest(clients, self.noise.spared(clients)):
            return f"{setting('dp.tolerated')} {problem}"
        if 0 < most < clients:
            return (
                f"{clients} clients, but {setting('client_num')} is {most}; with more "
                "clients each adds less noise"
            )
        return ""

    def of_client(self, number: int, features: Tensor, labels: Tensor) -> Releaser:
        return Releaser(number, features, labels, self.noise)

    def totals(self, clients: int) -> NoisyTotals:
        return NoisyTotals(self.noise, clients)


class NoisyTotals:
    """The server's side of a release under masks.

    Attributes
    ----------
    release : NoisyStatistics or None
        After the last stage.
    """

    release: NoisyStatistics | None = None

    def __init__(self, noise: NoiseSettings, clients: int):
        self._plan = noise.plan_of(clients)
        self._moments: tuple[Tensor, Tensor] | None = None

    @property
    def origin(self) -> Tensor:
        return torch.zeros(0) if self._moments is None else self._moments[1].float()

    def end(self, stage: str, total: np.ndarray, most_rows: int) -> str:
        if problem := self._plan.problem(stage, total, most_rows):
            return problem
        if stage == MOMENTS:
            self._moments = self._plan.centre(total)
        else:
            assert self._moments is not None, "the stage of moments comes first"
            self.release = self._plan.released(*self._moments, total)
        return ""

    def take(self, course: Any, roster: Iterable[int]) -> None:
        assert self.release is not None, "the last stage is not over"
        course.find(NoisyReleaseExchange).take(self.release, roster)
