"""Validation rows: what they choose, what they stop, and that test rows do neither."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from early_stop_oracle import LARGER_IS_BETTER, stops_at

from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.engines.run import Run, load_federated_data
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation import evaluate
from federatedscope_ggeur.reporting import results_table

KEY = "eval.best_res_update_round_wise_key"
VALIDATED = [
    "data.splits", [0.5, 0.2, 0.3],
    "eval.split", ["test", "val"],
    KEY, "val_loss",
    "early_stop.patience", 0,
    "federate.total_round_num", 6,
]  # fmt: skip


def finished(cfg, data=None) -> Run:
    run = Run(cfg, data)
    run.follow(lambda record: None)
    return run


def with_labels_of_test_rows_permuted(data):
    """`data` as far as training and validation go; every client's test labels mixed."""
    generator = torch.Generator().manual_seed(5)

    def mixed(rows: Embeddings) -> Embeddings:
        order = torch.randperm(len(rows), generator=generator)
        return Embeddings(rows.features, rows.labels[order], rows.domain)

    clients = [replace(client, test=mixed(client.test)) for client in data.clients]
    pooled = data.pooled and {
        **data.pooled,
        "test": {name: mixed(rows) for name, rows in data.pooled["test"].items()},
    }
    return replace(data, clients=tuple(clients), pooled=pooled)


@pytest.mark.parametrize(
    "settings",
    [
        [KEY, "test_acc"],
        ["early_stop.patience", 1, "train.optimizer.lr", 0.3],
        ["federate.make_global_eval", True],
        ["ggeur.base_method", "local"],
    ],
    ids=str,
)
def test_labels_of_test_rows_choose_nothing(config, settings):
    cfg = config(*VALIDATED, *settings)
    data = load_federated_data(cfg)
    before = finished(cfg, data).history.results()
    after = finished(cfg, with_labels_of_test_rows_permuted(data)).history.results()
    assert before.final.avg != after.final.avg
    first, second = before.final.chosen, after.final.chosen
    assert (first.round, first.key, first.value) == (
        second.round, second.key, second.value,
    )  # fmt: skip
    assert first.key.startswith("val_")
    assert before.stopped_early == after.stopped_early
    assert len(before.rounds) == len(after.rounds)


def test_the_chosen_round_is_the_first_of_the_best(config):
    results = finished(config(*VALIDATED, "train.optimizer.lr", 0.5)).history.results()
    losses = [record.metrics["val_loss"] for record in results.rounds]
    best = results.rounds[int(np.argmin(losses))]
    chosen = results.final.chosen
    assert (chosen.round, chosen.value) == (best.round, min(losses))
    assert (chosen.accuracy, chosen.avg) == (best.accuracy, best.avg)
    assert f"round {chosen.round} by val_loss" in results_table(results)


def test_validation_rows_are_scored_and_not_trained_on(config):
    """They can be anything: only what they score changes."""
    cfg = config(*VALIDATED)
    data = load_federated_data(cfg)
    spoilt = replace(
        data,
        clients=tuple(
            replace(c, val=Embeddings(c.val.features * 50, c.val.labels, c.domain))
            for c in data.clients
        ),
    )
    before, after = finished(cfg, data), finished(cfg, spoilt)
    server = before.engine.server
    assert torch.equal(server.params, after.engine.server.params)
    one, two = (run.history.rounds[-1].metrics for run in (before, after))
    assert one["val_loss"] != two["val_loss"]
    assert one["test_loss"] == two["test_loss"]
    scores = [
        evaluate(server.model, server.params, held.val.features, held.val.labels)
        for held in data.clients
    ]
    assert min(score.total for score in scores) > 0
    rows = sum(score.total for score in scores)
    for name in ("acc", "avg_loss", "loss"):
        wanted = sum(s.metrics("val")[f"val_{name}"] * s.total for s in scores) / rows
        assert one[f"val_{name}"] == pytest.approx(wanted, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "patience", "delta", "mode", "lr", "by_server"),
    [
        ("val_loss", 1, 0.0, "best", 3.0, False),
        ("val_acc", 2, 0.001, "mean", 0.5, False),
        ("train_loss", 3, 50.0, "best", 0.05, True),
    ],
)
def test_a_run_ends_where_the_plain_rule_says(
    config, key, patience, delta, mode, lr, by_server
):
    """The rule itself is said by tests/federation/test_early_stop.py."""
    common = [*VALIDATED, "eval.split", ["train", "test", "val"], KEY, key]
    common += ["train.optimizer.lr", lr, "federate.total_round_num", 12]
    common += ["federate.make_global_eval", by_server]
    whole = finished(config(*common)).history.results()
    curve = [record.metrics[key] for record in whole.rounds]
    larger = LARGER_IS_BETTER[key.partition("_")[2]]
    wanted = stops_at(curve, patience, delta, mode, larger)
    assert wanted < 12
    rule = ["early_stop.patience", patience, "early_stop.delta", delta]
    rule += ["early_stop.improve_indicator_mode", mode]
    stopped = finished(config(*common, *rule)).history.results()
    assert len(stopped.rounds) == stopped.stopped_early == wanted
    assert f"stopped early, after round {wanted}" in results_table(stopped)
    for one, other in zip(stopped.rounds, whole.rounds):
        assert one.metrics == other.metrics


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ([], "data.splits keeps no rows for validation"),
        (["data.splits", [0.5, 0.2, 0.3]], "eval.split does not hold val"),
    ],
)
def test_without_rows_fs_s_default_key_finds_nothing_and_a_note_says_so(
    config, settings, why
):
    plain = [KEY, "val_loss", "early_stop.patience", 2, "eval.split", ["test"]]
    run = finished(config(*plain, *settings))
    note = f"there is no val_loss ({why}), so early_stop.patience 2 does nothing"
    assert f"note: {note}" in run.describe()
    results = run.history.results()
    assert results.notes[0] == note
    assert (results.final.chosen, results.stopped_early) == (None, None)


def test_test_rows_may_not_stop_a_run(config):
    with pytest.raises(ConfigError, match=r"early_stop\.patience: must be 0 with"):
        config(*VALIDATED, KEY, "test_loss", "early_stop.patience", 1)


def test_nothing_stops_what_is_not_averaged(config):
    settings = ["early_stop.patience", 1, "train.optimizer.lr", 3.0]
    run = finished(config(*VALIDATED, *settings, "eval.report", ["raw"]))
    assert len(run.history.rounds) == 6
    assert "eval.report holds neither" in run.history.results().notes[0]
