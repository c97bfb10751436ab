"""Calibrates the head after the last round, by statistics of clients (CCVR).

Luo et al., 2021: the last layer is trained again on drawn inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from federatedscope_ggeur.errors import GGEURError, setting
from federatedscope_ggeur.geometry import Space, Statistics
from federatedscope_ggeur.models import (
    LinearHead,
    Model,
    draw_features,
    put_last_layer,
    take_last_layer,
)
from federatedscope_ggeur.reporting import Privacy
from federatedscope_ggeur.rng import derive_seed
from federatedscope_ggeur.settings import (
    Objection,
    Objections,
    Section,
    amount,
    key,
    one_of,
)

from ..demands import Demands
from ..merge import Merge
from ..sampling import windows
from ..settings import TrainingSettings
from ..wire.schema import Declared, MessageSchema
from .base import ClientSide, Exchange, RequestKind, Requests, register_exchange
from .statistics.exchange import check_domain, longest_upload, upload_of
from .statistics.upload import StatisticsUpload
from .training.exchange import model_broadcast
from .training.fit import fit
from .training.messages import Broadcast


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
    model : Model
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
    layer = LinearHead(statistics.dim, len(classes))
    start, own_seed = take_last_layer(model, params, classes), derive_seed(seed, "ccvr")
    result = fit(layer, start, features, position[labels], training, own_seed)
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


class CalibrationKeys(Section):
    """The settings of calibration."""

    calibrate: str = key(
        "none",
        "After the last round. none: nothing. ccvr: train the last layer again on "
        "draws from the clients' merged class statistics of its inputs.",
        one_of("none", "ccvr"),
        shared=True,
    )
    samples: int = key(500, "CCVR: draws for each class.", amount, name="ccvr.samples")
    epochs: int = key(
        10,
        "CCVR: epochs on the draws, with train.optimizer and dataloader.batch_size.",
        amount,
        name="ccvr.epochs",
    )


def calibration_settings(run: Demands, training: TrainingSettings):
    """The settings of calibration, with the clients' settings of `training`."""
    own = run.of(CalibrationKeys)
    return CalibrationSettings(own.samples, own.epochs, training)


def objections(run: Demands) -> Objections:
    """The settings that cannot go with calibration."""
    if run.calibrates:
        why = "which already makes a new head from the trained one"
        yield Objection("calibrate", {"keep": ["trained"]}, why)


class CalibrationClient(ClientSide):
    """Sends statistics of the last layer's input, for one set of weights only."""

    _asked: Broadcast | None = None

    def calibrate(self, broadcast: Broadcast) -> StatisticsUpload:
        """Compute statistics of the last layer's input for the broadcast weights.

        The weights are those of a model on raw embeddings. A server that was restarted
        may ask again for the same weights.

        Raises
        ------
        MessageError
            The weights differ from those of the first request. A server that could
            choose the hidden layers several times could tell rows apart.
        """
        before = self._asked
        if before is not None and not before.params.equal(broadcast.params):
            raise self.refused(
                "a second calibration with other weights; a client answers only for "
                "one set"
            )
        self._asked, client = broadcast, self.client
        model = client.model.at(broadcast.params)
        inputs = model.in_chunks(model.last_input, client.features).cpu()
        classes = client.task.num_classes
        statistics = Statistics.from_embeddings(inputs, client.labels, classes)
        return upload_of(client, statistics, client.task.statistics.by_class)


def _schema(exchange: CalibrationExchange) -> MessageSchema:
    server = exchange.server
    return server.task.calibration_schema(server.model)


def _bound(declared: Declared, exchange: Any, upload: StatisticsUpload) -> None:
    """Refuse statistics of more rows than declared.

    Clients declare nothing else about a layer's input.
    """
    rows = int(upload.statistics.counts.sum())
    declared.check_rows(upload.client, "counts", rows, declared.train)


CALIBRATE = RequestKind(
    name="calibrate",
    message="calibrate",
    deadline="round0",
    parts=(Broadcast,),
    respond=lambda side, broadcast: side.calibrate(broadcast),
    answer_message="calibration_statistics",
    answer=StatisticsUpload,
    validate=lambda exchange, request, upload: check_domain(upload, exchange),
    bound=_bound,
    schema=_schema,
    largest=lambda exchange: longest_upload(_schema(exchange)),
)


@register_exchange("calibration")
class CalibrationExchange(Exchange):
    """Trains the last layer again on draws from the clients' statistics."""

    KINDS = (CALIBRATE,)
    CLIENT = CalibrationClient
    SETTINGS = CalibrationKeys
    objections = staticmethod(objections)
    REVEALS = "statistics of the last layer's input, for each class of each client"

    def __init__(self, course):
        super().__init__(course)
        server = self.server
        settings = server.settings.of(CalibrationSettings)
        self.calibration = Calibration(server.model, settings, server.task.seed)
        #: Whether a restart has lost statistics that would have sufficed.
        self._is_lost = False

    @classmethod
    def is_due(cls, demands: Demands) -> bool:
        return demands.calibrates

    @classmethod
    def privacy(cls, before: Privacy, run: Demands) -> Privacy:
        return replace(before, server_sees=[*before.server_sees, cls.REVEALS])

    def run(self, number: int) -> Requests[dict[str, int]]:
        """Calibrate the head after the last round; returns the source of the draws.

        If clients send again what a restart has lost, it is `apart` from the record.
        """
        course, server, calibration = self.course, self.server, self.calibration
        before = course.spent()
        if not calibration.takes(server.merged):
            sent = model_broadcast(server, number).to_bytes()
            for window in windows(server.participants, course.plan.round0_window):
                uploads = yield from self.ask_present(CALIBRATE, number, window, sent)
                calibration.add(uploads)
        if self._is_lost:
            self.apart = course.spent() - before
        params, details = calibration.run(server.scored_params, server.space)
        server.take_calibrated(params)
        return details

    def progress(self) -> dict[str, Any]:
        suffices = self._is_lost or self.calibration.takes(self.server.merged)
        return {"statistics_suffice": suffices}

    def resume_progress(self, values: Mapping[str, Any]) -> None:
        # Older files, and those of a run that did not calibrate, do not say it.
        self._is_lost = values.get("statistics_suffice") is True
