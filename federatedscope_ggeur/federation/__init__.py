"""The roles of client and server, their messages, local training and evaluation."""

from federatedscope_ggeur.federation.client import Client
from federatedscope_ggeur.federation.exchanges.calibration.calibration import (
    CalibrationSettings,
)
from federatedscope_ggeur.federation.exchanges.evaluation.scores import (
    EarlyStopSettings,
    EvaluationSettings,
    Score,
    evaluate,
)
from federatedscope_ggeur.federation.exchanges.training.fit import fit
from federatedscope_ggeur.federation.memory import MemoryBudget
from federatedscope_ggeur.federation.optimizers import (
    CosineSchedule,
    OptimizerSettings,
    StepSchedule,
)
from federatedscope_ggeur.federation.server import Server
from federatedscope_ggeur.federation.settings import RoleSettings
from federatedscope_ggeur.federation.task import Task
from federatedscope_ggeur.federation.training_settings import TrainingSettings
