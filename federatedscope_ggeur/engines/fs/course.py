"""The server worker's course: round 0, rounds, calibration, the end."""

from __future__ import annotations

import logging

from federatedscope_ggeur.cfg_ggeur.run_settings import server_evaluates
from federatedscope_ggeur.engines.fs.robust import RULES, RobustFedAvg
from federatedscope_ggeur.engines.fs.vocabulary import FINISH
from federatedscope_ggeur.models import load_vector

logger = logging.getLogger(__name__)


class LeadsCourse:
    """The part of a worker with a `federation` and an `_exchange` that FS calls in the
    course of a run; each step starts a conversation of the coordinator."""

    def trigger_for_feat_engr(
        self, trigger_train_func, kwargs_for_trigger_train_func=None
    ):
        """Round 0, then FS's training; a restored run goes on where it was."""
        kwargs = kwargs_for_trigger_train_func or {}
        federation = self.federation
        federation.start(self._robust_method())
        server = federation.coordinator.server
        self.unseen_clients_id = server.unseen
        self.total_round_num = server.settings.total_rounds
        self.models[0] = self._model = server.model
        if server_evaluates(self._cfg):
            self.trainer.model = self._model

        is_new = federation.round0 is None

        def begin_training(round0):
            federation.note_round0(round0)
            load_vector(server.model, server.params)
            self.state = len(federation.rounds)
            if is_new and round0.closed_form is not None:
                self.eval()  # which ends a run without rounds
            if self.state < self.total_round_num:
                trigger_train_func(**kwargs)
            elif not is_new:
                logger.info("all %d rounds of the restored run are over", self.state)
                self._calibrate_or(self.terminate)

        if is_new:
            self._driver.start(federation.coordinator.round0(), begin_training)
        else:
            self._driver.start(
                federation.coordinator.welcome_back(),
                lambda _: begin_training(federation.round0),
            )

    def _robust_method(self):
        rule = self._cfg.aggregator.robust_rule
        return RobustFedAvg(self.aggregator) if rule in RULES else None

    def broadcast_model_para(
        self,
        msg_type="model_para",
        sample_client_num=-1,
        filter_unseen_clients=True,
    ):
        """Begin the next round: the clients that the server role draws train."""
        number = self.state + 1
        self._driver.start(
            self.federation.coordinator.round(number), self._end_of_round
        )

    def _end_of_round(self, record) -> None:
        server = self.federation.coordinator.server
        load_vector(server.model, server.params)
        self.federation.note_round(record)
        self.state = record.round
        if record.evaluated:
            self.eval()
        if self.state < self.total_round_num:
            self._start_new_training_round()

    def check_and_save(self):
        """FS's check whether the run is over; before its end comes calibration."""
        if self.state == self.total_round_num:
            self._calibrate_or(super().check_and_save)
        else:
            super().check_and_save()

    def _calibrate_or(self, finish) -> None:
        """Begin the calibration, if it is still to come, or else `finish`."""
        federation = self.federation
        coordinator = federation.coordinator
        settings = coordinator.server.settings
        if settings.calibration is None or federation.calibrated is not None:
            finish()
            return
        self._driver.start(coordinator.calibrate(), self._end_of_calibration)

    def _end_of_calibration(self, record) -> None:
        server = self.federation.coordinator.server
        load_vector(server.model, server.params)
        self.federation.note_calibrated(record)
        self.eval()

    def terminate(self, msg_type=FINISH):
        """End the run: the final head goes to all clients, our files are written."""
        self.is_finish = True
        self._monitor.finish_fl()
        logger.info("\n%s", self.federation.write("finished"))
        final = self.federation.coordinator.server.broadcast(self.total_round_num)
        self._send(msg_type, self.federation.here, (final.to_bytes(),))
