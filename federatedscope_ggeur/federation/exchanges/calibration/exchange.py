"""Calibrates the head after the last round (CCVR), by statistics of clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.advice import withheld_note
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.sampling import windows
from federatedscope_ggeur.federation.wire.declared import Declared
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.geometry import Statistics

from ..base import ClientSide, Exchange, RequestKind, Requests, register_exchange
from ..statistics.exchange import check_domain, longest_upload, upload_of
from ..statistics.upload import StatisticsUpload
from ..training.exchange import model_broadcast
from ..training.messages import Broadcast
from . import keys
from .calibration import Calibration, CalibrationSettings


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
            problem = (
                "a second calibration with other weights; a client answers only for "
                "one set"
            )
            raise MessageError(problem, field="kind", sender="the server")
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
    KEYS = keys.KEYS
    objections = staticmethod(keys.objections)
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
    def withheld_note(
        cls, counts: np.ndarray, threshold: int, domains: Sequence[str] = ()
    ) -> str:
        return withheld_note(counts, threshold, domains)

    def run(self, number: int) -> Requests[dict[str, int]]:
        """Calibrate the head after the last round; returns the source of the draws.

        If clients send again what a restart has lost, it is `apart` from the record.
        """
        course, server, calibration = self.course, self.server, self.calibration
        before = course.spent()
        if not calibration.takes(server.merged):
            for window in windows(server.participants, course.plan.round0_window):
                here = course.membership.here(window)
                asked = dict.fromkeys(
                    here, (model_broadcast(server, number).to_bytes(),)
                )
                calibration.add((yield from course.ask(CALIBRATE, number, asked)))
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
