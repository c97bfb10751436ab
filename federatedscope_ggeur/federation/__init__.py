"""The roles of client and server, their messages, local training and evaluation."""

from .client import Client
from .exchanges.calibration import CalibrationSettings
from .exchanges.evaluation.scores import (
    EarlyStopSettings,
    EvaluationSettings,
    Score,
    evaluate,
)
from .exchanges.training.fit import fit
from .memory import MemoryBudget
from .optimizers import CosineSchedule, OptimizerSettings, StepSchedule
from .server import Server
from .settings import RoleSettings, Task, TrainingSettings
