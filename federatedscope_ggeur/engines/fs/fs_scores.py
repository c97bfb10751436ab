"""Writes a round's scores in the form of FederatedScope's (FS's) own files."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from federatedscope_ggeur.federation import Score
from federatedscope_ggeur.federation.exchanges.evaluation.messages import ScoreReport
from federatedscope_ggeur.federation.exchanges.evaluation.scores import METRICS
from federatedscope_ggeur.printable import printable
from federatedscope_ggeur.reporting import RoundRecord

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
