"""Predict the classes of new images and embeddings with the models of a run."""

from federatedscope_ggeur.predictor.predictor import Prediction, Predictor

__all__ = ["Prediction", "Predictor"]
