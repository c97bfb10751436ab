"""The server worker in FederatedScope (FS): passes on the coordinator's requests.

Writes a round's scores in the form of FederatedScope's (FS's) own files.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from federatedscope.core.auxiliaries.utils import merge_dict_of_results
from federatedscope.core.communication import StandaloneCommManager
from federatedscope.core.message import Message
from federatedscope.core.workers import Server as FSServer

from federatedscope_ggeur.cfg_ggeur.fs_keys import switches
from federatedscope_ggeur.cfg_ggeur.keys import DeadlineKeys, DistributedKeys, read
from federatedscope_ggeur.cfg_ggeur.run_settings import server_evaluates, use_threads
from federatedscope_ggeur.federation import Score
from federatedscope_ggeur.federation.exchanges.base import all_kinds
from federatedscope_ggeur.federation.exchanges.evaluation.scores import (
    METRICS,
    ScoreReport,
)
from federatedscope_ggeur.models import load_vector
from federatedscope_ggeur.printable import get_logger, printable
from federatedscope_ggeur.reporting import Round0, RoundRecord, TemperatureScaling

from ..sites.federation import DistributedRun
from ..sites.leading import CONVERGED, FAILED, FINISH, JOIN, Handler, Leading
from ..sites.watch import Watch, closing
from .channel import ServerManager, message
from .config import RULES, RobustFedAvg, check, least_clients
from .user_errors import follow_fs_logging, for_constructor

_AVG, _STD = "test_domain_avg_acc", "test_domain_std_acc"


def domain_metrics(
    record: RoundRecord, scores: Mapping[str, Mapping[str, Score]], update_key: str
) -> dict[str, float]:
    """FS's metrics of a round, over all rows of each split and over domains.

    Test rows also have metrics for each domain. For its best results FS takes every
    metric whose name contains `update_key`. If the name of a domain's metric contains
    this key by chance, the name is spelt with a hyphen.
    """
    metrics = {}
    for split, domains in scores.items():
        score = sum(domains.values(), Score())
        if score.total:
            metrics.update(score.metrics(split))
    for domain, accuracy in record.accuracy.items():
        if accuracy is not None:
            metrics[_metric_name(domain, update_key)] = accuracy
    if record.avg is not None:
        metrics[_AVG], metrics[_STD] = record.avg, record.std
    return metrics


def _metric_name(domain: str, update_key: str) -> str:
    # FS's reader of these lines replaces every apostrophe by a JSON quote.
    name = f"test_{printable(domain)}_acc".replace("'", "-").replace('"', "-")
    clash = update_key in name or name in (_AVG, _STD)
    name = name.replace("_acc", "-acc") if clash else name
    return name.replace(update_key, update_key.replace("_", "-"))


def settle_monitor(monitor, is_left: Callable[[], bool]) -> None:
    """Make FS's monitor give Python floats, and leave out unknown metrics.

    With numpy 2 FS's lines hold ``np.float64(...)``. With fewer than ten clients they
    hold NaN. Neither FS's own reader of these lines nor JSON takes them.

    FS fails if no metric has its key, such as ``val_loss`` without validation rows.
    Then no round is selected: the best scores are those of the model that the run
    leaves. `is_left` says whether the model just scored would be left if the run ended
    now.
    """
    original = monitor.format_eval_res
    original_update = monitor.update_best_result
    key, selects = monitor.round_wise_update_key, False

    def format_eval_res(*args, **kwargs):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            # FS takes the mean over the worst tenth of the clients, which may be empty.
            warnings.simplefilter("ignore", RuntimeWarning)
            return _plain(original(*args, **kwargs))

    def update_best_result(best_results, new_results, results_type):
        nonlocal selects
        if any(key in name for name in new_results):
            selects = True
            original_update(best_results, new_results, results_type)
        elif not selects and is_left():
            best_results[results_type] = _single(new_results)

    monitor.format_eval_res = format_eval_res
    monitor.update_best_result = update_best_result


def _single(metrics: Mapping[str, float | Sequence[float]]) -> dict[str, float]:
    """Reduce each metric to one value, the best one over clients, as FS does."""

    def best(name: str, values: Sequence[float]) -> float:
        larger = METRICS[name.partition("_")[2]]
        return max(values) if larger else min(values)

    return {
        name: best(name, value) if isinstance(value, list) else value
        for name, value in metrics.items()
    }


def _plain(value):
    if isinstance(value, dict):
        plain = {key: _plain(part) for key, part in value.items()}
        return {key: part for key, part in plain.items() if part == part}
    return value.item() if isinstance(value, np.generic) else value


def client_metrics(reports: Mapping[int, ScoreReport]) -> dict[int, dict[str, float]]:
    """FS's metrics of each client on its own rows, by client number."""
    return {
        number: {
            name: value
            for split, score in report.scores.items()
            if score.total
            for name, value in score.metrics(split).items()
        }
        for number, report in reports.items()
        if any(score.total for score in report.scores.values())
    }


logger = get_logger(__name__)


class GGEURServer(FSServer):
    """The server of ``federate.method: ggeur``.

    FS's order of calls is kept: clients join, `trigger_for_feat_engr` is round 0, every
    training round begins with `broadcast_model_para`, `eval` takes the scores, and
    `check_and_save` ends the run. In each of these calls the coordinator decides what
    to ask, wait for and compute.
    """

    def __init__(self, ID=-1, state=0, config=None, data=None, *args, **kwargs):
        given = config
        if config is not None:
            check(config)
            follow_fs_logging()
            use_threads(config)
            # FS would unpickle the file, and make a server optimiser of its own.
            changes = {
                "federate.restore_from": "",
                "federate.make_global_eval": server_evaluates(config),
                "early_stop.patience": 0,  # the history says when to stop
                **{f"{section}.use": False for section in switches()},
            }
            given = for_constructor(config, changes)
            kwargs["device"] = "cpu"  # of FS's own model; the role has its device
        super().__init__(ID, state, given, data, *args, **kwargs)
        if config is None:
            return
        self._cfg, self.mode = config, config.federate.mode.lower()
        settle_monitor(self._monitor, self._scored_what_is_left)
        hub = None
        if self.mode == "standalone":
            self.comm_manager = StandaloneCommManager(
                comm_queue=kwargs["shared_comm_queue"], monitor=self._monitor
            )
        else:
            self.comm_manager = ServerManager(
                kwargs["host"], kwargs["port"], self.client_num, config
            )
            hub = self.comm_manager.hub
        self.federation = DistributedRun(
            config,
            None if data is None else data.known,
            engine=f"federatedscope {self.mode}",
            folder=config.outdir,
            proven=hub is None or bool(read(config.ggeur, DistributedKeys).join_secret),
        )
        self._leading = Leading(
            self.federation,
            self._send,
            read(config.ggeur, DeadlineKeys),
            self.trigger_for_start,
            hub,
            find=self._handler,
        )
        self.driver = self._leading.driver
        if hub is not None:
            logger.info("listening on %s:%d", kwargs["host"], hub.port)

    def _register_default_handlers(self):
        self._answers = {k.answer_message: k for k in all_kinds() if k.answer_message}
        requests = [kind.message for kind in all_kinds()]
        self.register_handlers(JOIN, self.callback_funcs_for_join_in, requests)
        for message_type in self._answers:
            self.register_handlers(
                message_type, self.callback_for_answer, [*requests, CONVERGED, FINISH]
            )
        self.register_handlers(FAILED, self.callback_for_failure, [None])

    # joining

    def callback_funcs_for_join_in(self, message: Message):
        """Let a client join, or join again after its connection was lost."""
        self._leading.join(message.sender, message.state, message.content)

    def check_client_join_in(self):
        return self.federation.membership.complete

    # requests and answers

    def callback_for_answer(self, message: Message):
        """Take a client's answer to any request."""
        kind = self._answers[message.msg_type]
        self._leading.answer(kind, message.sender, message.state, message.content)

    # FS's own names for answers.
    callback_funcs_model_para = callback_for_answer
    callback_funcs_for_metrics = callback_for_answer

    def callback_for_failure(self, message: Message):
        """Take a client's message that says why it stops."""
        self._leading.fail(message.sender, message.state, message.content)

    def _send(self, message_type, receivers, parts, state: int) -> None:
        self._monitor.track_upload_bytes(sum(map(len, parts)) * len(receivers))
        self.comm_manager.send(message(message_type, state, parts, receivers=receivers))

    # the course

    def trigger_for_feat_engr(
        self, trigger_train_func, kwargs_for_trigger_train_func=None
    ):
        """Run round 0, then FS's training; a restored run continues where it was."""
        kwargs = kwargs_for_trigger_train_func or {}
        federation, rule = self.federation, self._cfg.aggregator.robust_rule
        robust = None
        if rule in RULES:
            robust = RobustFedAvg(self.aggregator, least_clients(self._cfg))
        federation.start(robust)
        coordinator, history = federation.coordinator, federation.history
        server = coordinator.server
        self.unseen_clients_id = server.unseen
        self.models[0] = self._model = server.model
        if server_evaluates(self._cfg):
            self.trainer.model = self._model

        def begin_training(is_new: bool) -> None:
            self._load_scored()
            self.state, self.total_round_num = len(history.rounds), server.rounds
            if history.stopped_early:
                self.total_round_num = self.state
            if is_new and history.round0.closed_form is not None:
                self.eval()  # which ends a run without rounds
            if self.state < self.total_round_num:
                trigger_train_func(**kwargs)
            elif not is_new:
                logger.info(
                    "all %d rounds of the restored run are finished already", self.state
                )
                self._end_rounds_or(self.terminate)

        def end_of_round0(record: Round0) -> None:
            federation.note(record)
            begin_training(is_new=True)

        if history.round0 is None:
            self.driver.start(coordinator.round0(), end_of_round0)
        else:
            welcome = coordinator.welcome_back()
            self.driver.start(welcome, lambda _: begin_training(is_new=False))

    def broadcast_model_para(
        self, msg_type="model_para", sample_client_num=-1, filter_unseen_clients=True
    ):
        """Begin the next round with the clients that the server role draws."""
        requests = self.federation.coordinator.round(self.state + 1)
        self.driver.start(requests, self._end_of_round)

    def _end_of_round(self, record: RoundRecord) -> None:
        self._load_scored()
        self.federation.note(record)
        self.state = record.round
        if record.evaluated:
            self.eval()
        if self.state < self.total_round_num:
            self._start_new_training_round()

    def check_and_save(self):
        """Check whether the run is over, as FS does; calibrate before its end."""
        stops = self.federation.history.stopped_early
        if stops and self.state < self.total_round_num:
            logger.info("early_stop ends the run after round %d", self.state)
            self._monitor.global_converged()
            self._send(CONVERGED, self.federation.membership.connected, (), self.state)
            self.total_round_num = self.state
        if self.state == self.total_round_num:
            self._end_rounds_or(super().check_and_save)
        else:
            super().check_and_save()

    def _end_rounds_or(self, finish) -> None:
        """Begin the step after the last round if it is due, or else call `finish`."""
        coordinator, history = self.federation.coordinator, self.federation.history

        def end(record: RoundRecord | TemperatureScaling | None) -> None:
            self.federation.end(record)
            if isinstance(record, RoundRecord):
                self._load_scored()
                self.eval()  # which ends the run
            else:
                finish()

        if history.awaits_end:
            self.driver.start(coordinator.after_rounds(), end)
        else:
            finish()

    def _load_scored(self) -> None:
        server = self.federation.coordinator.server
        load_vector(server.model, server.raw_params)

    def terminate(self, msg_type=FINISH):
        """End the run: send the final head to all clients, and write result files."""
        self.is_finish = True
        self._monitor.finish_fl()
        federation = self.federation
        logger.info("\n%s", federation.write("finished"))
        history, server = federation.history, federation.coordinator.server
        if server.settings.demands.keeps_best or history.scaling is not None:
            self.models[0] = self._model = history.model()
        ending = history.ending(read(self._cfg.ggeur, DistributedKeys).share_results)
        self._leading.send_finals(ending, self.state)

    # scores, in FS's own files

    def eval(self):
        """Write the scores of the finished round into FS's files and best results."""
        coordinator, history = self.federation.coordinator, self.federation.history
        key = self._cfg.eval.best_res_update_round_wise_key
        line = self._format(
            domain_metrics(history.last_scored, coordinator.evaluation.scores, key)
        )
        self._monitor.update_best_result(
            self.best_results, line["Results_raw"], results_type="server_global_eval"
        )
        self.history_results = merge_dict_of_results(self.history_results, line)
        # This round's alone: those of every client and round would fill the memory.
        own = client_metrics(coordinator.evaluation.reports)
        self.msg_buffer["eval"] = {self.state: own}
        if own:
            merged = self.merge_eval_results_from_all_clients()
            self.history_results = merge_dict_of_results(self.history_results, merged)
        self.check_and_save()

    def _scored_what_is_left(self) -> bool:
        """Whether the last scores are those of the model that the run would leave."""
        history = self.federation.history
        closed_form = history.round0.closed_form
        if history.calibrated is not None:  # with all shares the one-shot head's, too
            return True
        return not history.leaves_closed_form or history.last_scored is closed_form

    def save_best_results(self):
        """Write the end of FS's own result files."""
        self._format(self.best_results, "Final")

    def save_client_eval_results(self):
        """Write each client's last scores, if clients score their own test rows."""
        if self.msg_buffer["eval"].get(self.state):
            super().save_client_eval_results()

    def _format(self, metrics: dict, rnd=None) -> dict:
        """Write FS's line of `metrics` into the log and into FS's file."""
        line = self._monitor.format_eval_res(
            metrics,
            rnd=self.state if rnd is None else rnd,
            role="Server #",
            forms=["raw"],
            return_raw=True,
        )
        logger.info(line)
        self._monitor.save_formatted_results(line)
        return line

    # distributed mode

    def run(self):
        """Distributed mode: lead the federation to its end.

        Raises
        ------
        GGEURError
            Too few clients joined or are left (``ggeur.quorum``). The error names the
            missing ones.
        """
        with closing(Watch(self._cfg.outdir, "server", self._leading.status)):
            self._leading.run(lambda: self.is_finish)

    def _handler(self, kind: str) -> Handler | None:
        """The function that FS has registered for this kind of message."""
        handler = self.msg_handlers.get(kind)
        if handler is None:
            return None

        def take(number: int, state: int, parts) -> None:
            self._monitor.track_download_bytes(sum(map(len, parts)))
            handler(message(kind, state, parts, number))

        return take
