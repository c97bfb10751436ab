"""What the server role is told before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from federatedscope_ggeur.federation.calibration import CalibrationSettings
from federatedscope_ggeur.federation.messages.schema import EACH_CLASS, StatisticsForm
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.models import ClosedForm, ModelSettings


@dataclass(frozen=True)
class ServerSettings:
    """What the server is told before it starts.

    Attributes
    ----------
    num_classes, dim : int
    head : HeadSettings
    method : Method
    steps : tuple of int
        Of the augmentation: none needs no statistics, 2 needs prototypes.
    prototypes : {"domain", "client"}
        One prototype for a class and other domain, or for a class and other client.
    sample_client_num : int
        Clients drawn each round.
    ignore_weight : bool
        Average with equal weights in place of n_k.
    total_rounds, eval_every : int
        Rounds in all; the head is scored every so many, and after the last one.
    seed : int
    unseen_client_num : int
        Clients that take no part in round 0 or in training and are only scored.
    statistics : StatisticsForm
    closed_form : ClosedForm, optional
        The head in closed form that round 0 ends with.
    calibration : CalibrationSettings, optional
        What is done to the head after the last round.
    """

    num_classes: int
    dim: int
    model: ModelSettings
    method: Method
    steps: tuple[int, ...]
    prototypes: str
    sample_client_num: int
    ignore_weight: bool
    total_rounds: int
    eval_every: int
    seed: int
    unseen_client_num: int = 0
    statistics: StatisticsForm = EACH_CLASS
    closed_form: ClosedForm | None = None
    calibration: CalibrationSettings | None = None
