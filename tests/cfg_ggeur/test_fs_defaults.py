"""FederatedScope's (FS's) defaults need not be written, its other keys may be."""

from __future__ import annotations

import pytest

from federatedscope_ggeur.cfg_ggeur.fs_keys import fs_keys
from federatedscope_ggeur.cfg_ggeur.load import (
    OTHER_KEYS,
    idle_notes,
    load_config,
    settle_defaults,
    unsettle_defaults,
)
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import ConfigError

#: All that must be said.
LEAST = {
    "federate": {"method": "ggeur"},
    "data": {"type": "digits_quickstart@ggeur", "splits": [0.7, 0.0, 0.3]},
    "ggeur": {"use": True, "step1_size": 20, "step2_size": 10},
}


def test_a_config_needs_only_what_differs():
    cfg = load_config(LEAST)
    assert cfg.model.type == "ggeur_head"
    assert cfg.criterion.type == "CrossEntropyLoss"
    assert cfg.trainer.type == "ggeur_trainer"
    results = run(cfg, overrides={"federate.total_round_num": 1})
    assert [client.domain for client in results.clients] == results.domains
    assert results.config["federate"]["client_num"] == 0


@pytest.mark.parametrize("unseen", [[], ["noisy"]])
def test_a_domain_is_a_client_where_nobody_says_otherwise(unseen):
    """It holds what the only client of its domain does."""
    settings = {"ggeur.unseen_domains": unseen}
    unsaid = Run(load_config(LEAST, settings)).data
    said = {"federate.client_num": 4 - len(unseen), "data.splitter": "iid"}
    other = Run(load_config(LEAST, {**settings, **said})).data
    assert len(unsaid.clients) == 4 - len(unseen)
    for ours, theirs in zip(unsaid.clients, other.clients):
        assert (ours.number, ours.domain) == (theirs.number, theirs.domain)
        assert ours.train.features.equal(theirs.train.features)
        assert ours.test.features.equal(theirs.test.features)


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ({"federate.client_num": 4}, "data.splitter"),
        ({"data.splitter": "iid"}, "federate.client_num"),
        ({"data.splitter_args": [{"alpha": 1.0}]}, "federate.client_num"),
    ],
)
def test_of_clients_and_splitter_one_does_not_go_without_the_other(setting, key):
    with pytest.raises(ConfigError, match=key):
        load_config(LEAST, setting)


def test_no_key_stands_in_two_tables():
    assert not {key.name for key in fs_keys()} & OTHER_KEYS.keys()


def test_what_is_off_in_fs_may_be_written_and_says_nothing():
    off = {"vertical.dims": [3, 4], "hpo.sha.budgets": [1, 2], "asyn.time_budget": 3}
    cfg = load_config(LEAST, off)
    assert cfg.vertical.dims == [3, 4]
    assert idle_notes(cfg) == []
    assert load_config(cfg) == cfg


def test_one_note_names_what_does_nothing():
    idle = {
        "data.subsample": 0.05,
        "data.transform": [["ToTensor"]],
        "model.hidden": 2048,
        "federate.online_aggr": True,
        "dataloader.num_workers": 0,
        "trainer.sam.rho": 0.05,
        "trainer.disp_freq": 5,
        "trainer.val_freq": 1,
    }
    cfg = load_config(LEAST, idle)
    (note,) = idle_notes(cfg)
    assert note.startswith("these settings have no effect here: ")
    for said in (
        "federate.online_aggr, data.subsample, ",
        "data.transform (the encoder prepares its images itself)",
        "model.hidden (use ggeur.mlp_hidden_dim, the number of hidden units)",
        "trainer.sam.rho (use ggeur.base_method fedsam",
        "trainer.disp_freq (each round is said)",
        "trainer.val_freq (use eval.freq, in rounds)",
    ):
        assert said in note
    assert "num_workers" not in note
    assert f"note: {note}" in Run(cfg).describe()
    assert idle_notes(load_config(LEAST)) == []


@pytest.mark.parametrize("name", ["model.type", "criterion.type", "trainer.type"])
def test_what_was_settled_can_be_undone_and_nothing_else(name):
    cfg = load_config(LEAST).clone()
    cfg.defrost()
    section, key = name.split(".")
    default = next(known.default for known in fs_keys() if known.name == name)
    assert settle_defaults(cfg) == []
    cfg[section][key] = default
    assert settle_defaults(cfg) == [name]
    unsettle_defaults(cfg, [])
    assert cfg[section][key] != default
    unsettle_defaults(cfg, [name])
    assert cfg[section][key] == default
