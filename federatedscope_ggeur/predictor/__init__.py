"""Predict the classes of new images and embeddings with the models of a run."""

from .predictor import Prediction, Predictor

__all__ = ["Prediction", "Predictor"]
