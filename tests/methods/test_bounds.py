"""`ggeur.base_method: local` and `centralised`, on the embedded engine."""

import re

import pytest
import torch

from federatedscope_ggeur.engines.forecast import forecast, set_up
from federatedscope_ggeur.engines.run import Run, load_federated_data, run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation import evaluate
from federatedscope_ggeur.reporting import Results, numbers, results_table
from federatedscope_ggeur.reporting.results import results_html

LOCAL = ("ggeur.base_method", "local")
CENTRALISED = ("ggeur.base_method", "centralised")
SIX = ("federate.client_num", 6)


def finished(cfg, data=None) -> Run:
    one = Run(cfg, data)
    one.follow(lambda record: None)
    return one


def figures(run: Run) -> dict:
    """The numbers of a run, without its settings."""
    kept = numbers(run.history.results())
    return {k: value for k, value in kept.items() if k not in ("config", "notes")}


class TestLocal:
    def test_it_does_not_matter_who_should_evaluate(self, config):
        asked = finished(config(*LOCAL, "federate.make_global_eval", True))
        plain = finished(config(*LOCAL))
        assert figures(asked) == figures(plain)
        note = "federate.make_global_eval has no effect with ggeur.base_method: local"
        assert [note in line for line in asked.describe()].count(True) == 1
        assert not any(note in line for line in plain.describe())

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("ggeur.unseen_domains", "['photo']"),
            ("federate.unseen_clients_rate", 0.5),
            ("ggeur.calibrate", "ccvr"),
            ("ggeur.closed_form", "ncm"),
            ("ggeur.augmentation", "fedmix"),
        ],
    )
    def test_what_needs_a_federation_is_refused_by_name(self, config, key, value):
        with pytest.raises(ConfigError, match=rf"  {key}: .*local"):
            config(*LOCAL, *SIX, key, value)


class TestCentralised:
    def test_one_client_trains_on_every_row_and_each_domain_is_scored(self, config):
        """On the rows that the splitter leaves, and of domains that are seen."""
        settings = [*SIX, "ggeur.steps", [], "ggeur.unseen_domains", "['photo']"]
        settings += ["data.splitter", "domain", "data.splitter_args"]
        settings.append("[{'fraction': 0.1}]")
        divided = load_federated_data(config(*settings))
        run = finished(config(*CENTRALISED, *settings))
        (client,) = run.engine.clients.values()
        rows = torch.cat([held.train.features for held in divided.clients])
        assert torch.equal(client.features, rows)
        assert (client.number, client.domain) == (1, "all domains")
        assert all(record.clients == [1] for record in run.history.rounds)
        assert client.aggregation_weight == len(rows)
        results, server = run.history.results(), run.engine.server
        assert results.config["federate"]["client_num"] == 6
        assert results.domains == ["art", "sketch", "photo"]
        assert results.unseen_domains == ["photo"]
        for name, test in divided.test_sets().items():
            score = evaluate(server.model, server.params, test.features, test.labels)
            assert results.rounds[-1].accuracy[name] == score.accuracy

    def test_settings_of_many_clients_change_nothing(self, config):
        plain = finished(config(*CENTRALISED, *SIX))
        many = ["federate.make_global_eval", True, "ggeur.quorum", 5]
        many += ["federate.sample_client_num", 4, "ggeur.prototypes", "client"]
        many += ["federate.ignore_weight", True]
        assert figures(finished(config(*CENTRALISED, *SIX, *many))) == figures(plain)

    def test_data_that_are_given_are_put_in_one_place_too(self, config):
        cfg, divided = config(*CENTRALISED, *SIX), load_federated_data(config(*SIX))
        assert figures(finished(cfg, divided)) == figures(finished(cfg))

    def test_unseen_clients_are_refused_by_name(self, config):
        message = r"  federate\.unseen_clients_rate: .*centralised"
        with pytest.raises(ConfigError, match=message):
            config(*CENTRALISED, *SIX, "federate.unseen_clients_rate", 0.5)


# What it takes to pool all rows (`centralised`): counted as sent, wherever bytes or
# privacy are spoken of.


SIX_CLIENTS = [*SIX, "data.splits", [0.6, 0.2, 0.2], "ggeur.steps", []]
POOLED = [*SIX_CLIENTS, *CENTRALISED]
NO_GUARANTEE = (
    "privacy: no guarantee; the rows of all clients are pooled in one place, which "
    "sees each of them"
)


def test_rows_that_are_pooled_are_sent_and_every_page_says_so(config, tmp_path):
    pooled, apart = run(config(*POOLED)), run(config(*SIX_CLIENTS))
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


def test_a_dry_run_says_both(config, tmp_path, ggeur):
    cfg = config(*POOLED, "federate.make_global_eval", True, "outdir", tmp_path)
    sent = run(cfg).final.bytes_up
    assert forecast(set_up(cfg)).total.up == pytest.approx(sent, rel=0.01)
    path = tmp_path / "pooled.yaml"
    path.write_text(cfg.dump())
    said = ggeur("--cfg", path, "--dry-run").out
    assert NO_GUARANTEE in said.splitlines()
    assert re.search(r"^rows of 6 clients, pooled +\S+ k?B +-$", said, re.M)
