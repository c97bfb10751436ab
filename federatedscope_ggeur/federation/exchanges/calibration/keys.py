"""Settings of calibration."""

from dataclasses import replace

from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.training_settings import TrainingSettings
from federatedscope_ggeur.models import calibration_draws
from federatedscope_ggeur.settings import Key, Objection, Objections, one_of

from .calibration import CalibrationSettings

KEYS = (
    Key(
        "calibrate",
        "none",
        "After the last round. none: nothing. ccvr: train the last layer again on "
        "draws from the clients' merged class statistics of its inputs.",
        one_of("none", "ccvr"),
        shared=True,
    ),
    *(replace(key, name=f"ccvr.{key.name}") for key in calibration_draws.SETTINGS),
)


def calibration_settings(run: Demands, training: TrainingSettings):
    """The settings of calibration, with the clients' settings of `training`."""
    return CalibrationSettings(run["ccvr.samples"], run["ccvr.epochs"], training)


def objections(run: Demands) -> Objections:
    """The settings that cannot go with calibration."""
    if run.calibrates:
        why = "which already makes a new head from the trained one"
        yield Objection("calibrate", {"keep": ["trained"]}, why)
