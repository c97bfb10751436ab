"""CCVR (Luo et al., 2021): trains the last layer again on drawn inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from federatedscope_ggeur.errors import GGEURError, setting
from federatedscope_ggeur.federation.merge import Merge
from federatedscope_ggeur.federation.training_settings import TrainingSettings
from federatedscope_ggeur.geometry import Space, Statistics
from federatedscope_ggeur.models import (
    LinearHead,
    Model,
    draw_features,
    put_last_layer,
    take_last_layer,
)
from federatedscope_ggeur.rng import derive_seed

from ..statistics.upload import StatisticsUpload
from ..training.fit import fit


@dataclass(frozen=True)
class CalibrationSettings:
    """The settings for training the last layer again.

    Attributes
    ----------
    samples : int
        The number of draws for each class.
    epochs : int
        The number of epochs over all draws.
    training : TrainingSettings
        The clients' settings. Optimiser, batch size and clipping are used.
    """

    samples: int
    epochs: int
    training: TrainingSettings


def calibrate(
    model: Model,
    params: Tensor,
    statistics: Statistics,
    settings: CalibrationSettings,
    seed: int,
) -> Tensor:
    """Train the last layer on draws from N(mu_c, Sigma_c); returns weights (P,).

    Parameters
    ----------
    head : Head
    params : Tensor of shape (P,)
        The weights from which training starts. All layers but the last stay as they
        are.
    statistics : Statistics
        Statistics of the last layer's input at `params`, merged over clients. A class
        without statistics keeps its weights and has no part in the softmax.
    settings : CalibrationSettings
    seed : int
        The seed of the run.
    """
    classes = statistics.classes
    features, labels = draw_features(statistics, settings.samples, seed)
    position = labels.new_zeros(statistics.num_classes)
    position[classes] = labels.new_tensor(range(len(classes)))
    training = replace(
        settings.training,
        local_update_steps=settings.epochs,
        batch_or_epoch="epoch",
        shuffle=True,
        drop_last=False,
    )
    result = fit(
        LinearHead(statistics.dim, len(classes)),
        take_last_layer(model, params, classes),
        features,
        position[labels],
        training,
        derive_seed(seed, "ccvr"),
    )
    return put_last_layer(model, params, classes, result.params)


class Calibration:
    """Calibrates the model on the server, after the last round.

    Parameters
    ----------
    model : Model
    settings : CalibrationSettings
    seed : int
    """

    def __init__(self, model: Model, settings: CalibrationSettings, seed: int):
        self._model, self._settings, self._seed = model, settings, seed
        dim = model.classifier.in_features
        self._merged = Merge(Statistics.empty(model.num_classes, dim))

    def takes(self, merged: Merge) -> bool:
        """Use statistics of the embeddings if possible; returns whether it is.

        It is possible if the head is linear, so that embeddings are the last layer's
        input, and if the statistics have a scatter for each class.
        """
        held = merged.statistics
        suffices = held.content == "class" and bool(held.classes)
        if not suffices or not isinstance(self._model, LinearHead):
            return False
        self._merged = merged
        return True

    def add(self, uploads: Iterable[StatisticsUpload]) -> None:
        """Merge the uploads of one window, in client order."""
        for upload in sorted(uploads, key=lambda upload: upload.client):
            self._merged.add(upload)

    def run(
        self, params: Tensor, space: Space | None = None
    ) -> tuple[Tensor, dict[str, int]]:
        """Calibrate: returns weights of shape (P,), and a record of the draws' source.

        Parameters
        ----------
        params : Tensor of shape (P,)
        space : Space, optional
            The space of the weights, if it is not raw. Draws for a linear head are made
            in this space.

        Raises
        ------
        GGEURError
            No client sent statistics, or training on the draws diverged.
        """
        held, settings = self._merged.statistics, self._settings
        if not held.classes:
            raise GGEURError(
                "the head cannot be calibrated, because no client sent statistics "
                f"of any class; lower {setting('min_samples')}, or set "
                f"{setting('calibrate')} to none"
            )
        details = {
            "draws_of_a_class": settings.samples,
            "left_out": held.num_classes - len(held.classes),
        }
        if space is not None and isinstance(self._model, LinearHead):
            held = space.statistics(held)
        calibrated = calibrate(self._model, params, held, settings, self._seed)
        if not torch.isfinite(calibrated).all():
            raise GGEURError(
                "calibration diverged: the weights contain NaN or infinity; lower "
                f"{setting('optimizer.lr')} or set {setting('grad_clip')}"
            )
        return calibrated, details
