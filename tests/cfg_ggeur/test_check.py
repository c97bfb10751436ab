"""The config extension, on yacs' CfgNode and on FederatedScope's CN."""

from __future__ import annotations

import pytest
from yacs.config import CfgNode

from federatedscope_ggeur.cfg_ggeur import (
    all_keys,
    describe_keys,
    extend_ggeur_cfg,
    get_key,
)
from federatedscope_ggeur.cfg_ggeur.load import config_problems, load_config
from federatedscope_ggeur.errors import ConfigError

BASE = {
    "federate": {"method": "ggeur", "client_num": 3},
    "data": {"type": "digits_quickstart@ggeur", "splitter": "iid"},
    "ggeur": {"use": True},
}


def load(**values) -> CfgNode:
    return load_config(BASE, {f"ggeur.{name}": v for name, v in values.items()})


def test_defaults_are_valid_and_never_none():
    cfg = load()
    for key in all_keys():
        assert get_key(cfg.ggeur, key.name) is not None
        assert key.meaning.endswith(".")


def test_defaults_are_not_shared_between_configs():
    first, second = load(), load()
    first.ggeur.steps.append(1)
    assert second.ggeur.steps == [1, 2]


def test_every_key_is_described():
    text = describe_keys()
    assert all(f"ggeur.{key.name} = " in text for key in all_keys())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("base_method", "fedsgd"),
        ("steps", [2, 1]),
        ("steps", 1),
        ("steps", [3]),
        ("scale", "sqrt"),
        ("sizes", "papers"),
        ("embedding_dim", 0.0),
        ("noise", "none"),
        ("prototypes", "class"),
        ("step1_size", 2.5),
        ("step1_size", -3.0),
        ("target_size_per_class", 0.0),
        ("mlp_hidden_dim", -1.0),
        ("weight", "rows"),
        ("unseen_domains", [1]),
        ("round0_window", 0.0),
        ("num_threads", 1.5),
        ("memory_limit", -1.0),
        ("privacy.min_samples", 0.0),
    ],
)
def test_impossible_values_are_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=f"ggeur.{name}"):
        load(**{name: value})


def test_nothing_is_said_because_of_a_key_that_is_wrong_itself():
    with pytest.raises(ConfigError) as caught:
        load(closed_form="lad", init="closed_form", base_method="fedav")
    _, *problems = str(caught.value).splitlines()
    keys = [line.split(":")[0].strip() for line in problems]
    assert keys == ["ggeur.closed_form", "ggeur.base_method"]


def test_all_that_parts_object_to_is_listed_with_the_reason():
    with pytest.raises(ConfigError) as caught:
        load(keep="best", calibrate="ccvr", base_method="local")
    text = str(caught.value)
    for beside in ("init: random", "calibrate: ccvr", "base_method: local"):
        assert f"ggeur.keep: must be trained with ggeur.{beside}, " in text


def test_sizes_in_both_ways_contradict_each_other():
    with pytest.raises(ConfigError, match=r"step1_size.*num_generated_per_sample"):
        load(step1_size=500.0, num_generated_per_sample=5.0)


def test_the_document_s_sizes_must_be_whole():
    sizes = {"target_size_per_class": 50.0, "num_generated_per_sample": 5.0}
    with pytest.raises(ConfigError, match=r"num_generated_per_prototype.*ggeur\.sizes"):
        load(**sizes)
    load(**sizes, steps=[1])
    load(sizes="document", target_size_per_class=50.0)


SIZE_KEYS = (
    "step1_size",
    "step2_size",
    "target_size_per_class",
    "num_generated_per_sample",
    "num_generated_per_prototype",
)


@pytest.mark.parametrize(
    ("rule", "takes"),
    [
        ("paper", SIZE_KEYS[:2]),
        ("release", SIZE_KEYS[:3]),
        ("document", SIZE_KEYS[2:]),
    ],
)
def test_a_rule_of_sizes_takes_its_own_numbers_alone(rule, takes):
    load(sizes=rule, **dict.fromkeys(takes, 7.0))
    for name in set(SIZE_KEYS) - set(takes):
        with pytest.raises(
            ConfigError, match=rf"ggeur\.{name}: .*ggeur\.sizes: {rule}"
        ):
            load(sizes=rule, **{name: 7.0})


def test_use_and_method_go_together():
    with pytest.raises(ConfigError, match=r"federate\.method"):
        load_config(BASE, {"federate.method": "FedAvg"})
    with pytest.raises(ConfigError, match=r"ggeur\.use"):
        load(use=False)


class TestFederatedScope:
    @pytest.fixture
    def cfg(self, federatedscope):
        cfg = federatedscope.global_cfg.clone()
        extend_ggeur_cfg(cfg)
        return cfg

    def test_a_quickstart_has_the_same_values_there_and_here(self, cfg, quickstart):
        here = load_config(quickstart)
        cfg.merge_from_file(str(quickstart))
        for key in all_keys():
            name = f"ggeur.{key.name}"
            assert get_key(cfg, name) == get_key(here, name)
            assert type(get_key(cfg, name)) is type(get_key(here, name))
        for name in ("federate.client_num", "data.splits", "train.optimizer.lr"):
            assert get_key(cfg, name) == get_key(here, name)

    def test_defaults_are_those_that_the_embedded_engine_assumes(self, federatedscope):
        from federatedscope_ggeur.cfg_ggeur.fs_keys import fs_keys

        cfg = federatedscope.global_cfg.clone()
        known = {key.name: key.default for key in fs_keys()}
        theirs = {name: get_key(cfg, name) for name in known}
        assert theirs == known

    def test_a_fraction_is_refused_and_not_cut_off(self, cfg, quickstart):
        cfg.merge_from_file(str(quickstart))
        cfg.merge_from_list(["ggeur.step1_size", "2.5"])
        (problem,) = config_problems(cfg, on_fs=True)
        assert problem.startswith("  ggeur.step1_size: ")
        assert "2.5" in problem

    def test_an_unused_section_survives_being_stripped(self, cfg):
        cfg.ready_for_run()
        assert list(cfg.ggeur) == ["use"]
        cfg.assert_cfg()
