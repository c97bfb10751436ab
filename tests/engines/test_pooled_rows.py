"""What it takes to pool all rows (`centralised`): counted as sent, wherever bytes or
privacy are spoken of."""

from __future__ import annotations

import re

import pytest

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines.forecast import forecast, set_up
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.reporting import Results, results_table, write_run
from federatedscope_ggeur.reporting.comparison import Comparison, Measure
from federatedscope_ggeur.reporting.results import results_html

SIX = ["federate.client_num", 6, "data.splits", [0.6, 0.2, 0.2], "ggeur.steps", []]
POOLED = [*SIX, "ggeur.base_method", "centralised"]
NO_GUARANTEE = (
    "privacy: no guarantee; the rows of all clients are pooled in one place, which "
    "sees each of them"
)


def finished(cfg) -> Run:
    one = Run(cfg)
    one.follow(lambda record: None)
    return one


@pytest.fixture
def pooled(config) -> Results:
    return finished(config(*POOLED)).history.results()


def test_rows_that_are_pooled_are_sent(config, pooled):
    held = finished(config(*SIX)).data.clients
    rows = sum(len(client.train) + len(client.val) for client in held)
    found = pooled.pooled
    assert (found.clients, found.rows) == (len(held), rows)
    each = held[0].train.features.shape[1] * 4 + 8  # float32, and a label of int64
    assert found.bytes_up == rows * each
    assert pooled.final.bytes_up == found.bytes_up + pooled.round0.bytes_up + sum(
        record.bytes_up for record in pooled.rounds
    )
    assert Results.from_json(pooled.to_json()).pooled == found


def test_where_rows_stay_nothing_is_pooled(config):
    results = finished(config(*SIX)).history.results()
    assert results.pooled is None
    assert "pooled" not in results_table(results)


def test_rows_that_the_server_scores_are_in_the_table(pooled):
    assert {client.test_rows for client in pooled.clients} == {0}
    for shown in (results_table(pooled), results_html(pooled)):
        assert "AVG" in shown
        assert "no test rows" not in shown


def test_the_table_says_it_and_what_it_means_for_privacy(pooled):
    megabytes = pooled.pooled.bytes_up / 1e6
    line = (
        f"of the bytes up, {megabytes:.2f} MB are the {pooled.pooled.rows} rows of 6 "
        "clients, pooled in one place to train on"
    )
    lines = results_table(pooled).splitlines()
    assert line in lines
    assert lines[-1] == NO_GUARANTEE
    assert line in results_html(pooled)
    assert NO_GUARANTEE in results_html(pooled)
    assert "the rows of all clients" in pooled.privacy.server_sees


def test_its_row_in_a_comparison_has_these_bytes(config, pooled, tmp_path):
    runs = {"pooled": pooled, "fedavg": finished(config(*SIX)).history.results()}
    for name, results in runs.items():
        (tmp_path / name).mkdir()
        write_run(tmp_path / name, results)
    (table,) = Comparison.of(tmp_path).tables
    sent = {
        next(iter(row.runs.values())).results.config["ggeur"]["base_method"]: next(
            iter(row.numbers(Measure("bytes_up")).values())
        )
        for row in table.rows.values()
    }
    assert sent["centralised"] == pooled.final.bytes_up / 6
    assert sent["centralised"] > pooled.pooled.bytes_up / 6


def test_a_dry_run_says_both(config, tmp_path, capsys):
    at_server = [*POOLED, "federate.make_global_eval", True]
    cfg = config(*at_server, "outdir", tmp_path)
    results = finished(cfg).history.results()
    assert forecast(set_up(cfg)).total.up == results.final.bytes_up
    path = tmp_path / "pooled.yaml"
    path.write_text(cfg.dump())
    assert main(["--cfg", str(path), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert NO_GUARANTEE in said.splitlines()
    assert re.search(r"^rows of 6 clients, pooled +\S+ k?B +-$", said, re.M)
