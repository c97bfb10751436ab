"""What the client role is told before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from federatedscope_ggeur.federation.messages.schema import EACH_CLASS, StatisticsForm
from federatedscope_ggeur.federation.training import TrainingSettings
from federatedscope_ggeur.geometry import AugmentationSettings
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.models import ModelSettings


@dataclass(frozen=True)
class ClientSettings:
    """What every client is told before it starts.

    Attributes
    ----------
    num_classes : int
    augmentation : AugmentationSettings
    training : TrainingSettings
    head : HeadSettings
    method : Method
    min_samples : int
        The min-count floor of the statistics that go up.
    weight : {"augmented", "original"}
        The rows that n_k counts: of the set trained on, or the client's own.
    seed : int
    statistics : StatisticsForm
    """

    num_classes: int
    augmentation: AugmentationSettings
    training: TrainingSettings
    model: ModelSettings
    method: Method
    min_samples: int
    weight: str
    seed: int
    statistics: StatisticsForm = EACH_CLASS
