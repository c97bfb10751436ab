"""The models that a run leaves, on new images."""

from federatedscope_ggeur.predictor.predictor import Prediction, Predictor

__all__ = ["Prediction", "Predictor"]
