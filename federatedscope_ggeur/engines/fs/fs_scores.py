"""A round's scores in FederatedScope's (FS's) own files and best results."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np

from federatedscope_ggeur.federation import Score
from federatedscope_ggeur.federation.messages import ScoreReport
from federatedscope_ggeur.printable import printable
from federatedscope_ggeur.reporting import RoundRecord

_AVG, _STD = "test_domain_avg_acc", "test_domain_std_acc"


def domain_metrics(
    record: RoundRecord, scores: Mapping[str, Mapping[str, Score]], update_key: str
) -> dict[str, float]:
    """FS's metrics of a round: over all rows of each split, and of the test rows also
    for each domain and over domains.

    FS finds its key for best results by the first part of a name that fits. A domain
    whose metric would fit too is spelt with a hyphen.
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
    # FS's reader of these lines makes a JSON quote of every apostrophe.
    name = f"test_{printable(domain)}_acc".replace("'", "-").replace('"', "-")
    clash = update_key in name or name in (_AVG, _STD)
    return name.replace("_acc", "-acc") if clash else name


def settle_monitor(monitor) -> None:
    """Have FS's monitor hand out Python floats, and do without what is not known.

    With numpy 2 FS's lines hold ``np.float64(...)`` and with fewer than ten clients
    NaN; neither FS's own reader of these lines nor JSON takes them.
    """
    original = monitor.format_eval_res
    original_update = monitor.update_best_result

    def format_eval_res(*args, **kwargs):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            # FS takes the mean of the worst tenth of the clients, which may be nobody.
            warnings.simplefilter("ignore", RuntimeWarning)
            return _plain(original(*args, **kwargs))

    def update_best_result(best_results, new_results, results_type):
        # Without rows for validation there is no val_loss, where FS would fail.
        if any(monitor.round_wise_update_key in name for name in new_results):
            original_update(best_results, new_results, results_type)

    monitor.format_eval_res = format_eval_res
    monitor.update_best_result = update_best_result


def _plain(value):
    if isinstance(value, dict):
        plain = {key: _plain(part) for key, part in value.items()}
        return {key: part for key, part in plain.items() if part == part}
    return value.item() if isinstance(value, np.generic) else value


def client_metrics(reports: Mapping[int, ScoreReport]) -> dict[int, dict[str, float]]:
    """FS's metrics of what clients scored on their own test rows, by number."""
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
