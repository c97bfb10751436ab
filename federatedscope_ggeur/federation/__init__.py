"""The roles of client and server, their messages, local training and evaluation."""

from federatedscope_ggeur.federation.calibration import CalibrationSettings
from federatedscope_ggeur.federation.client import Client
from federatedscope_ggeur.federation.evaluation import (
    SPLITS,
    EarlyStopSettings,
    EvaluationSettings,
    Score,
    evaluate,
)
from federatedscope_ggeur.federation.memory import MemoryBudget
from federatedscope_ggeur.federation.optimizers import (
    CosineSchedule,
    OptimizerSettings,
    StepSchedule,
)
from federatedscope_ggeur.federation.server import Server
from federatedscope_ggeur.federation.settings import ClientSettings, ServerSettings
from federatedscope_ggeur.federation.task import Task
from federatedscope_ggeur.federation.training import TrainingSettings, fit
