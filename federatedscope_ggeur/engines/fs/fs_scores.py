"""A round's scores in FederatedScope's (FS's) own files and best results."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping

import numpy as np
from federatedscope.core.auxiliaries.utils import merge_dict_of_results

from federatedscope_ggeur.engines.fs.trainer import fs_metrics
from federatedscope_ggeur.federation import Score
from federatedscope_ggeur.federation.messages import ScoreReport
from federatedscope_ggeur.reporting import HeadRecord, RoundRecord

logger = logging.getLogger(__name__)
RESULTS_TYPE = "server_global_eval"
_AVG, _STD = "test_domain_avg_acc", "test_domain_std_acc"


def domain_metrics(
    record: RoundRecord | HeadRecord, scores: Iterable[Score], update_key: str
) -> dict[str, float]:
    """FS's metrics of a round: over all test rows, for each domain, and over domains.

    FS finds its key for best results by the first part of a name that fits. A domain
    whose metric would fit too is spelt with a hyphen.
    """
    metrics = fs_metrics(sum(scores, Score()))
    for domain, accuracy in record.accuracy.items():
        if accuracy is not None:
            metrics[_metric_name(domain, update_key)] = accuracy
    if record.avg is not None:
        metrics[_AVG], metrics[_STD] = record.avg, record.std
    return metrics


def _metric_name(domain: str, update_key: str) -> str:
    # FS's reader of these lines makes a JSON quote of every apostrophe.
    name = f"test_{domain}_acc".replace("'", "-").replace('"', "-")
    clash = update_key in name or name in (_AVG, _STD)
    return name.replace("_acc", "-acc") if clash else name


def use_plain_floats(monitor) -> None:
    """Have FS's monitor hand out Python floats, and leave out what is not a number.

    With numpy 2 FS's lines hold ``np.float64(...)`` and with fewer than ten clients
    NaN; neither FS's own reader of these lines nor JSON takes them.
    """
    original = monitor.format_eval_res

    def format_eval_res(*args, **kwargs):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            # FS takes the mean of the worst tenth of the clients, which may be nobody.
            warnings.simplefilter("ignore", RuntimeWarning)
            return _plain(original(*args, **kwargs))

    monitor.format_eval_res = format_eval_res


def _plain(value):
    if isinstance(value, dict):
        plain = {key: _plain(part) for key, part in value.items()}
        return {key: part for key, part in plain.items() if part == part}
    return value.item() if isinstance(value, np.generic) else value


class KeepsScores:
    """The part of a worker with a `federation` that fills FS's result files."""

    def eval(self):
        """The scores of the round that is over, in FS's files and best results."""
        coordinator = self.federation.coordinator
        metrics = domain_metrics(
            self.federation.last_scored,
            coordinator.scores.values(),
            self._cfg.eval.best_res_update_round_wise_key,
        )
        line = self._monitor.format_eval_res(
            metrics, rnd=self.state, role="Server #", forms=["raw"], return_raw=True
        )
        self._monitor.update_best_result(
            self.best_results, line["Results_raw"], results_type=RESULTS_TYPE
        )
        self._keep(line)
        self.history_results = merge_dict_of_results(self.history_results, line)
        self._merge_reports(coordinator.reports)
        self.check_and_save()

    def _merge_reports(self, reports: Mapping[int, ScoreReport]) -> None:
        """What clients scored on their own test rows; FS merges these its own way."""
        eval_params = {
            number: fs_metrics(Score(report.correct, report.total, report.loss_sum))
            for number, report in reports.items()
            if report.total
        }
        # This round's alone: those of every client and round would fill the memory.
        self.msg_buffer["eval"] = {self.state: eval_params}
        if eval_params:
            merged = self.merge_eval_results_from_all_clients()
            self.history_results = merge_dict_of_results(self.history_results, merged)

    def save_best_results(self):
        """The end of FS's own result files; checkpoints are written every round."""
        line = self._monitor.format_eval_res(
            results=self.best_results,
            rnd="Final",
            role="Server #",
            forms=["raw"],
            return_raw=True,
        )
        self._keep(line)

    def save_client_eval_results(self):
        """Each client's last scores, where clients score their own test rows."""
        if self.msg_buffer["eval"].get(self.state):
            super().save_client_eval_results()

    def _keep(self, line: dict) -> None:
        logger.info(line)
        self._monitor.save_formatted_results(line)
