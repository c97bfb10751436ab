"""What the roles are told before they start."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from federatedscope_ggeur.federation.calibration import CalibrationSettings
from federatedscope_ggeur.federation.masking.settings import SumSettings
from federatedscope_ggeur.federation.task import Task
from federatedscope_ggeur.federation.text import TextMix, TextPull
from federatedscope_ggeur.federation.training import TrainingSettings
from federatedscope_ggeur.geometry import AugmentationSettings
from federatedscope_ggeur.models import CPU, ClosedForm


@dataclass(frozen=True)
class ClientSettings:
    """What every client is told before it starts.

    Attributes
    ----------
    task : Task
    augmentation : AugmentationSettings
    training : TrainingSettings
    min_samples : int
        The min-count threshold of what goes up of a class.
    weight : {"augmented", "original", "statistics"}
        The rows that n_k counts: of the set trained on, the client's own, or those
        that statistics are sent of.
    sends_statistics : bool
        Whether round 0 asks for class statistics.
    closed_form : ClosedForm, optional
        As the server's.
    scored : tuple of str
        The splits of its own rows that it scores a head on.
    text_pull : TextPull, optional
        Draws training to the zero-shot head.
    sums : SumSettings, optional
        Statistics are summed under masks, and sent in no other way.
    train_withheld : bool
        Whether rows of withheld classes are trained on.
    float32_means : bool
        Whether means are rounded to float32 before they travel.
    """

    task: Task
    augmentation: AugmentationSettings
    training: TrainingSettings
    min_samples: int
    weight: str
    sends_statistics: bool = False
    closed_form: ClosedForm | None = None
    scored: tuple[str, ...] = ("test",)
    text_pull: TextPull | None = None
    sums: SumSettings | None = None
    train_withheld: bool = True
    float32_means: bool = False


@dataclass(frozen=True)
class ServerSettings:
    """What the server is told before it starts.

    Attributes
    ----------
    task : Task
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
    unseen_client_num : int
        Clients that take no part in round 0 or in training and are only scored.
    closed_form : ClosedForm, optional
        The head in closed form that round 0 ends with.
    keeps_best : bool
        The run may leave the head in closed form, where training starts at one.
    calibration : CalibrationSettings, optional
        What is done to the head after the last round.
    device : torch.device
        Where the head is scored on rows that the server holds. All else that the
        server works out, it does on the CPU.
    rate : float, optional
        The clients' learning rate, for what is said where training diverges.
    max_share : float
        The largest share of an average of updates that one client has; 1: any.
    counts_own_rows : bool
        Whether what clients count for are rows of their own.
    text_mix : TextMix, optional
        What is scored and left lies between the trained head and the zero-shot one.
    sums : SumSettings, optional
        As the clients'.
    """

    task: Task
    steps: tuple[int, ...]
    prototypes: str
    sample_client_num: int
    ignore_weight: bool
    total_rounds: int
    eval_every: int
    unseen_client_num: int = 0
    closed_form: ClosedForm | None = None
    keeps_best: bool = False
    calibration: CalibrationSettings | None = None
    device: torch.device = CPU
    rate: float | None = None
    max_share: float = 1.0
    counts_own_rows: bool = False
    text_mix: TextMix | None = None
    sums: SumSettings | None = None
