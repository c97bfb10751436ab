"""What it takes to pool all rows (`centralised`): counted as sent, wherever bytes or
privacy are spoken of."""

from __future__ import annotations

import re

import pytest

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines.forecast import forecast, set_up
from federatedscope_ggeur.engines.run import run
from federatedscope_ggeur.reporting import Results, results_table
from federatedscope_ggeur.reporting.results import results_html

SIX = ["federate.client_num", 6, "data.splits", [0.6, 0.2, 0.2], "ggeur.steps", []]
POOLED = [*SIX, "ggeur.base_method", "centralised"]
NO_GUARANTEE = (
    "privacy: no guarantee; the rows of all clients are pooled in one place, which "
    "sees each of them"
)


@pytest.mark.slow
def test_rows_that_are_pooled_are_sent_and_every_page_says_so(config, tmp_path):
    pooled, apart = run(config(*POOLED)), run(config(*SIX))
    assert apart.pooled is None
    assert "pooled" not in results_table(apart)
    rows = sum(client.train_rows + client.val_rows for client in apart.clients)
    found = pooled.pooled
    assert (found.clients, found.rows) == (len(apart.clients), rows)
    assert found.bytes_up == rows * (16 * 4 + 8)  # float32, and a label of int64
    assert pooled.final.bytes_up == found.bytes_up + pooled.round0.bytes_up + sum(
        record.bytes_up for record in pooled.rounds
    )
    assert Results.from_json(pooled.to_json()).pooled == found
    assert "the rows of all clients" in pooled.privacy.server_sees
    # The server scores, of domains that no client has test rows of.
    assert {client.test_rows for client in pooled.clients} == {0}
    line = (
        f"of the bytes up, {found.bytes_up / 1e6:.2f} MB are the {rows} rows of 6 "
        "clients, pooled in one place to train on"
    )
    assert results_table(pooled).splitlines()[-1] == NO_GUARANTEE
    for shown in (results_table(pooled), results_html(pooled)):
        assert "AVG" in shown
        assert "no test rows" not in shown
        assert line in shown
        assert NO_GUARANTEE in shown


def test_a_dry_run_says_both(config, tmp_path, capsys):
    cfg = config(*POOLED, "federate.make_global_eval", True, "outdir", tmp_path)
    assert forecast(set_up(cfg)).total.up == run(cfg).final.bytes_up
    path = tmp_path / "pooled.yaml"
    path.write_text(cfg.dump())
    assert main(["--cfg", str(path), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert NO_GUARANTEE in said.splitlines()
    assert re.search(r"^rows of 6 clients, pooled +\S+ k?B +-$", said, re.M)
