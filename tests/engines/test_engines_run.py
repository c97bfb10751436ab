"""A run from Python: what it takes, what it tells, and the model that it returns."""

import numpy as np
import pytest
import torch

from federatedscope_ggeur.engines.forecast import forecast, set_up
from federatedscope_ggeur.engines.run import Run, load_federated_data, run
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.federation.exchanges.base import Spent
from federatedscope_ggeur.reporting import Results, Round0, RoundRecord

SHORT = {"federate": {"total_round_num": 2}, "ggeur": {"calibrate": "ccvr"}}


def test_each_record_is_told_as_it_comes(config):
    seen = []
    results = run(config(), overrides=SHORT, on_round=seen.append)
    kinds = [type(record) for record in seen]
    assert kinds == [Round0, RoundRecord, RoundRecord, RoundRecord]
    assert [record.method for record in seen[1:]] == [None, None, "ccvr"]
    assert [results.round0, *results.rounds, results.calibrated] == seen


def test_data_of_another_type_are_named(config):
    with pytest.raises(DataError, match=r"FederatedData\.from_arrays makes"):
        run(config(), np.ones((4, 3)))


def test_domains_of_data_that_are_handed_in_can_be_unseen(config):
    settings = ["ggeur.unseen_domains", ["art"], "ggeur.steps", []]
    divided, given = load_federated_data(config(*settings)), Run(config()).data
    results = run(config(*settings), given)
    assert results.unseen_domains == ["art"]
    assert [info.domain for info in results.clients] == ["photo", "sketch"]
    assert results.final.accuracy.keys() == divided.test_sets().keys()


def test_settings_that_would_divide_data_that_are_handed_in_are_named(config):
    given = load_federated_data(config())
    drawn = {"data.splitter": "lda", "data.splitter_args": [{"alpha": 1}]}
    more = {**drawn, "federate.client_num": 7, "data.splits": [0.5, 0.2, 0.3]}
    for settings, named in (
        ({}, []),
        ({**drawn, "federate.client_num": 3}, ["data.splitter"]),
        (more, ["data.splitter, federate.client_num, data.splits"]),
    ):
        notes = run({"federate.total_round_num": 1, **settings}, given).notes
        assert [n.split(": ")[1] for n in notes if "came divided" in n] == named


def test_the_dimensions_that_were_asked_for_are_checked(config):
    given = load_federated_data(config())
    assert run(config("ggeur.embedding_dim", 16)).rounds
    wrong = config("ggeur.embedding_dim", 512)
    for data in (None, given):
        with pytest.raises(ConfigError, match=r"embedding_dim: is 512, .* have 16 dim"):
            run(wrong, data)


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["ggeur.mlp_hidden_dim", 8, "ggeur.space", "standard"],
        ["ggeur.calibrate", "ccvr"],
        ["ggeur.closed_form", "mixture", "ggeur.privacy.min_samples", 1],
        ["ggeur.base_method", "centralised", "ggeur.steps", "[]"],
    ],
    ids=["linear", "mlp in a space", "calibrated", "closed_form", "centralised"],
)
def test_the_model_is_the_one_that_was_scored(config, settings):
    cfg = config(*settings)
    results = run(cfg)
    last = results.calibrated or (results.rounds or [results.round0.closed_form])[-1]
    for domain, rows in load_federated_data(cfg).test_sets().items():
        found = results.predict(rows.features)
        assert (found.dtype, found.shape) == (np.int64, (len(rows),))
        right = (found == rows.labels.numpy()).sum().item()
        assert right / len(rows) == last.accuracy[domain]
        shares = results.predict_proba(rows.features.numpy())
        assert shares.shape == (len(rows), len(results.class_names))
        assert np.allclose(shares.sum(axis=1), 1, atol=1e-5)
        assert (shares.argmax(axis=1) == found).all()


def test_the_model_of_a_moment_does_not_go_on(config):
    cfg = config()
    at_once = run(cfg, overrides={"federate.total_round_num": 1})
    started, early = Run(cfg), []
    started.follow(lambda record: early.append(started.history.results()))
    rows = load_federated_data(cfg).clients[0].test.features
    after_one = early[1].predict_proba(rows)
    assert np.array_equal(after_one, at_once.predict_proba(rows))
    assert not np.array_equal(after_one, early[-1].predict_proba(rows))


def test_no_model_where_only_a_file_is_left(config):
    alone = run(config("ggeur.base_method", "local", "ggeur.steps", "[]"))
    assert alone.model is None
    for results in (alone, run(config())):
        read = Results.from_json(results.to_json())
        assert read.model is None
        message = r"^model: these results were read from a file"
        with pytest.raises(DataError, match=message):
            read.predict(np.zeros((1, 16)), clients=1)


def test_a_run_says_how_many_rows_each_domain_has_for_what(config):
    run = Run(config("federate.client_num", 3, "data.splits", "[0.6, 0.1, 0.3]"))
    for held in run.data.clients:
        train, val, test = (len(rows) for rows in (held.train, held.val, held.test))
        line = f"domain {held.domain}: 1 client, {train} rows to train on, "
        line += f"{val} for validation, {test} to test"
        assert line in run.describe()
    run = Run(config("federate.client_num", 3))
    for held in run.data.clients:
        line = f"domain {held.domain}: 1 client, {len(held.train)} rows to train on, "
        assert f"{line}{len(held.test)} to test" in run.describe()


# What a dry run foretells, beside what the run itself then sends.


AT_SERVER = ["federate.make_global_eval", True]
SAMPLED = ["federate.client_num", 12, "federate.sample_client_num", 3]
ELEVEN = ["federate.total_round_num", 11]


def near(traffic: Spent, record) -> bool:
    """Whether the bytes are those of a record, but for digits in headers."""
    foretold = [traffic.up, traffic.down]
    return foretold == pytest.approx([record.bytes_up, record.bytes_down], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ELEVEN,
        [*AT_SERVER, *ELEVEN, *SAMPLED, "eval.freq", 4],
        [*AT_SERVER, "ggeur.augmentation", "fedmix", "ggeur.steps", "[]"],
        [*AT_SERVER, "ggeur.base_method", "scaffold"],
        [*AT_SERVER, "ggeur.space", "standard"],
        [*AT_SERVER, "ggeur.base_method", "fedproto", "ggeur.steps", "[1]"],
        [*AT_SERVER, "ggeur.calibrate", "ccvr", "ggeur.mlp_hidden_dim", 4],
        [*AT_SERVER, "ggeur.closed_form", "lda"],
        [*AT_SERVER, "ggeur.closed_form", "lda", "ggeur.init", "closed_form"],
        ["federate.client_num", 6, "federate.unseen_clients_rate", 0.4],
        ["ggeur.base_method", "local", "ggeur.steps", "[]"],
    ],
    ids=lambda settings: " ".join(map(str, settings)),
)
def test_bytes_are_those_of_the_run(config, settings):
    cfg = config(*settings)
    found, results = forecast(set_up(cfg)), Run(cfg).follow(lambda record: None)
    assert near(found.total, results.final)
    sent, round0 = found.round0, results.round0
    uploads = sum(round0.statistics_bytes_up.values())
    assert sent.get("statistics", Spent()).up == uploads
    for phase in ("geometry", "prototypes", "init_broadcast"):
        down = getattr(round0, f"{phase}_bytes_down")
        assert sent.get(phase, Spent()).down == down
    assert sent.get("prepare", Spent()).up == round0.prepare_bytes_up
    if results.rounds and results.rounds[0].evaluated:
        assert near(sum(found.round.values(), Spent()), results.rounds[0])
    if results.calibrated:
        assert near(sum(found.calibration.values(), Spent()), results.calibrated)
    assert found.scored == sum(record.evaluated for record in results.rounds)


def test_nothing_is_written_or_read(config, tmp_path):
    place = tmp_path / "checkpoint"
    kept = ["federate.save_to", place, "federate.restore_from", tmp_path / "none"]
    threads = torch.get_num_threads()
    before = sorted(tmp_path.rglob("*"))
    forecast(set_up(config("outdir", tmp_path / "exp", *kept)))
    assert sorted(tmp_path.rglob("*")) == before
    assert torch.get_num_threads() == threads
