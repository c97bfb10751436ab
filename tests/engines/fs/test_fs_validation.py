"""Validation and early stopping in FederatedScope: rows, rounds, files."""

from __future__ import annotations

import numpy as np
import pytest
from early_stop_oracle import RULES, VALUES, first_stop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import check_same_head
from standalone import assert_same, final_of, lines_at

from federatedscope_ggeur.engines.run import Run

pytestmark = pytest.mark.slow

VALIDATED = [
    "data.splits", [0.5, 0.2, 0.3],
    "eval.split", ["test", "val"],
    "eval.best_res_update_round_wise_key", "val_loss",
]  # fmt: skip
STOPPING = [
    *VALIDATED,
    "federate.total_round_num", 12,
    "early_stop.patience", 2,
    # Nothing improves by so much: the run ends after three evaluations.
    "early_stop.delta", 1e6,
    "ggeur.privacy.min_samples", 1,
]  # fmt: skip


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RULES, VALUES, st.booleans())
def test_a_run_stops_where_fs_s_own_stopper_says(federatedscope, rule, values, larger):
    from federatedscope.core.monitors.early_stopper import EarlyStopper

    theirs = EarlyStopper(rule.patience, rule.delta, rule.mode, larger)
    lengths = range(1, len(values) + 1)
    ends = (n for n in lengths if theirs.track_and_check(values[:n]))
    assert first_stop(rule, values, larger) == next(ends, None)


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["federate.make_global_eval", True],
        ["federate.unseen_clients_rate", 0.25],
        ["ggeur.base_method", "local"],
        ["ggeur.base_method", "centralised"],
        ["ggeur.calibrate", "ccvr", "ggeur.ccvr.samples", 20],
        ["ggeur.closed_form", "lda", "ggeur.init", "closed_form"],
        ["eval.freq", 2],
        ["eval.report", ["avg", "raw"]],
    ],
    ids=str,
)
def test_the_same_rows_choose_and_stop(fs, config, more):
    there = fs.run(*STOPPING, *more)
    assert_same(there, Run(config(*STOPPING, *more)))
    assert there.results.stopped_early == (6 if "eval.freq" in more else 3)


@pytest.mark.parametrize("more", [[], ["federate.make_global_eval", True]], ids=str)
def test_the_same_rows_choose_the_temperature(fs, config, more):
    enough = ["data.splits", [0.3, 0.55, 0.15], "data.splitter", "domain"]
    settings = [*STOPPING, *enough, "data.splitter_args", [], *more]
    there = fs.run(*settings)
    assert_same(there, Run(config(*settings)))
    assert there.results.final.calibrated_by == "validation"


def test_distributed_stops_in_the_same_round(fleet, embedded):
    one = fleet(*STOPPING)
    server = one.server()
    clients = [one.client(number) for number in (1, 2, 3, 4)]
    expected = embedded(*STOPPING)
    check_same_head(server, clients, expected)
    assert server.results["stopped_early"] == expected[0]["stopped_early"] == 3
    assert "early_stop ends the run" in server.output


@pytest.mark.parametrize("by_server", [True, False])
def test_distributed_without_validation_rows_selects_nothing(fleet, by_server):
    one = fleet("federate.make_global_eval", by_server)
    server = one.server()
    clients = [one.client(number) for number in (1, 2, 3, 4)]
    for worker in (server, *clients):
        worker.wait()
    last = server.results["rounds"][-1]
    final = final_of(lines_at(server.run_folder))
    assert final["server_global_eval"]["test_domain_avg_acc"] == last["avg"]
    assert ("client_summarized_weighted_avg" in final) != by_server
    if not by_server:
        averaged = final["client_summarized_weighted_avg"]
        assert averaged["test_acc"] == last["metrics"]["test_acc"]


def test_fs_s_own_files_hold_validation(fs):
    there = fs.run(*VALIDATED, "federate.total_round_num", 4)
    averaged = [
        line["Results_weighted_avg"]
        for line in there.lines()
        if "Results_weighted_avg" in line
    ]
    ours = [record.metrics for record in there.results.rounds]
    assert [line["val_loss"] for line in averaged] == [m["val_loss"] for m in ours]
    best = there.final()["client_summarized_weighted_avg"]
    assert best["val_loss"] == min(metrics["val_loss"] for metrics in ours)


def test_fs_s_default_key_without_rows_is_no_error(fs, config):
    settings = [
        "eval.best_res_update_round_wise_key", "val_loss",
        "eval.split", ["test", "val"],
        "early_stop.patience", 2,
    ]  # fmt: skip
    there = fs.run(*settings)
    assert_same(there, Run(config(*settings)))
    assert "there is no val_loss" in there.log


def test_trainers_score_validation_rows(fs):
    there = fs.set_up(*VALIDATED)
    client = there.runner.client[1]
    found = client.trainer.evaluate("val")
    assert found["val_total"] == len(there.data[1]["val"]["y"]) > 0
    assert np.isfinite(found["val_loss"])


def test_a_finished_run_has_its_temperature_when_restored(fs, config, tmp_path):
    enough = ["data.splits", [0.3, 0.55, 0.15], "data.splitter", "domain"]
    settings = [*enough, "data.splitter_args", [], "eval.split", ["test", "val"]]
    fs.run(*settings, "federate.save_to", tmp_path / "point")
    there = fs.run(*settings, "federate.restore_from", tmp_path / "point")
    expected = Run(config(*settings)).follow(lambda record: None)
    assert there.results.final.calibrated_by == "validation"
    assert there.results.final.head_sha256 == expected.final.head_sha256
