"""Validation rows: what they choose, what they stop, and that test rows do neither."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from early_stop_oracle import LARGER_IS_BETTER, stops_at
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.engines.run import Run, load_federated_data
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation import evaluate
from federatedscope_ggeur.reporting import results_table

VALIDATED = [
    "data.splits", [0.5, 0.2, 0.3],
    "eval.split", ["test", "val"],
    "eval.best_res_update_round_wise_key", "val_loss",
    "early_stop.patience", 0,
    "federate.total_round_num", 8,
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
        [],
        ["eval.best_res_update_round_wise_key", "val_acc"],
        ["eval.best_res_update_round_wise_key", "test_acc"],
        ["early_stop.patience", 1, "train.optimizer.lr", 0.3],
        ["federate.make_global_eval", True],
        ["ggeur.base_method", "centralised"],
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


def test_metrics_are_those_of_the_clients_own_rows(config):
    run = finished(config(*VALIDATED))
    server, record = run.engine.server, run.history.rounds[-1]
    scores = [
        evaluate(server.model, server.params, held.val.features, held.val.labels)
        for held in run.data.clients
    ]
    assert min(score.total for score in scores) > 0
    rows = sum(score.total for score in scores)
    for name in ("acc", "avg_loss", "loss"):
        wanted = sum(s.metrics("val")[f"val_{name}"] * s.total for s in scores) / rows
        assert record.metrics[f"val_{name}"] == pytest.approx(wanted, rel=1e-12)


def test_validation_rows_are_not_trained_on(config):
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
    assert torch.equal(before.engine.server.params, after.engine.server.params)
    one, two = (run.history.rounds[-1].metrics for run in (before, after))
    assert one["val_loss"] != two["val_loss"]
    assert one["test_loss"] == two["test_loss"]


KEYS = st.sampled_from(["val_loss", "val_acc", "val_avg_loss", "train_loss"])


@pytest.mark.slow
@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    KEYS,
    st.integers(1, 4),
    st.sampled_from([0.0, 0.001, 0.5]),
    st.sampled_from(["best", "mean"]),
    st.sampled_from([0.05, 0.5, 3.0]),
    st.integers(0, 99),
    st.booleans(),
)
def test_a_run_ends_where_the_plain_rule_says(
    config, key, patience, delta, mode, lr, seed, server_evaluates
):
    common = [
        *VALIDATED,
        "eval.split", ["train", "test", "val"],
        "eval.best_res_update_round_wise_key", key,
        "train.optimizer.lr", lr,
        "federate.total_round_num", 12,
        "federate.make_global_eval", server_evaluates,
        "seed", seed,
    ]  # fmt: skip
    whole = finished(config(*common)).history.results()
    curve = [record.metrics[key] for record in whole.rounds]
    larger = LARGER_IS_BETTER[key.partition("_")[2]]
    wanted = stops_at(curve, patience, delta, mode, larger)
    rule = [
        "early_stop.patience", patience,
        "early_stop.delta", delta,
        "early_stop.improve_indicator_mode", mode,
    ]  # fmt: skip
    stopped = finished(config(*common, *rule)).history.results()
    assert len(stopped.rounds) == (wanted or 12)
    assert stopped.stopped_early == (wanted if wanted != 12 else None)
    assert [r.metrics for r in stopped.rounds] == [
        r.metrics for r in whole.rounds[: wanted or 12]
    ]


def test_a_restored_run_stops_where_it_would_have(config, tmp_path):
    stopping = [*VALIDATED, "early_stop.patience", 4, "early_stop.delta", 1e6]
    whole = finished(config(*stopping, "federate.total_round_num", 30))
    last = whole.history.results().stopped_early
    assert last == 5
    kept = str(tmp_path / "kept")
    short = ["federate.total_round_num", last - 1, "federate.save_to", kept]
    finished(config(*stopping, *short))
    again = ["federate.total_round_num", 30, "federate.restore_from", kept]
    resumed = finished(config(*stopping, *again, "federate.save_to", kept))
    assert resumed.history.results().stopped_early == last
    assert torch.equal(resumed.engine.server.params, whole.engine.server.params)
    after = finished(config(*stopping, *again))  # it is over already
    assert len(after.history.rounds) == last


def test_a_run_that_stops_early_says_so(config):
    stopping = ["early_stop.patience", 1, "train.optimizer.lr", 3.0]
    results = finished(config(*VALIDATED, *stopping)).history.results()
    last = results.rounds[-1].round
    assert results.stopped_early == last < 8
    assert f"stopped early, after round {last}" in results_table(results)


class TestWithoutValidationRows:
    PLAIN = ("eval.best_res_update_round_wise_key", "val_loss")

    @pytest.mark.parametrize(
        ("settings", "why"),
        [
            ([], "data.splits keeps no rows for validation"),
            (["data.splits", [0.5, 0.2, 0.3]], "eval.split does not hold val"),
        ],
    )
    def test_fs_s_default_key_finds_nothing_and_a_note_says_so(
        self, config, settings, why
    ):
        cfg = config(
            *self.PLAIN, "early_stop.patience", 2, "eval.split", ["test"], *settings
        )
        run = finished(cfg)
        note = f"there is no val_loss ({why}), so early_stop.patience 2 does nothing"
        assert f"note: {note}" in run.describe()
        results = run.history.results()
        assert results.notes[0] == note
        assert (results.final.chosen, results.stopped_early) == (None, None)

    def test_a_run_without_rounds_has_no_such_note(self, config):
        cfg = config(*self.PLAIN, "early_stop.patience", 5, "ggeur.closed_form", "lda")
        assert "early_stop" not in finished(cfg).describe()

    def test_test_rows_may_not_stop_a_run(self, config):
        key = ["eval.best_res_update_round_wise_key", "test_loss"]
        with pytest.raises(ConfigError, match=r"early_stop\.patience: must be 0 with"):
            config(*VALIDATED, *key, "early_stop.patience", 1)

    def test_nothing_stops_what_is_not_averaged(self, config):
        settings = ["early_stop.patience", 1, "train.optimizer.lr", 3.0]
        run = finished(config(*VALIDATED, *settings, "eval.report", ["raw"]))
        assert len(run.history.rounds) == 8
        assert "eval.report holds neither" in run.history.results().notes[0]
