"""A round's scores in FederatedScope's (FS's) own files and best results."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping

import numpy as np

from federatedscope_ggeur.engines.fs.trainer import fs_metrics
from federatedscope_ggeur.federation import Score
from federatedscope_ggeur.federation.messages import ScoreReport
from federatedscope_ggeur.reporting import RoundRecord

_AVG, _STD = "test_domain_avg_acc", "test_domain_std_acc"


def domain_metrics(
    record: RoundRecord, scores: Iterable[Score], update_key: str
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


def client_metrics(reports: Mapping[int, ScoreReport]) -> dict[int, dict[str, float]]:
    """FS's metrics of what clients scored on their own test rows, by number."""
    return {
        number: fs_metrics(Score(report.correct, report.total, report.loss_sum))
        for number, report in reports.items()
        if report.total
    }
