"""The embedded engine's config: read as FS reads it, refused by name.

Tests of cfg_ggeur/yaml_file.py.
"""

import numpy as np
import pytest
from examples import examples
from hypothesis import given as each
from hypothesis import strategies as st

from federatedscope_ggeur.cfg_ggeur.fs_keys import fs_keys
from federatedscope_ggeur.cfg_ggeur.load import (
    OTHER_KEYS,
    default_config,
    idle_notes,
    load_config,
    settle_defaults,
    unsettle_defaults,
)
from federatedscope_ggeur.cfg_ggeur.yaml_file import read_yaml, to_plain
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.examples import example_configs
from federatedscope_ggeur.settings import flatten


def test_overrides_may_be_a_dict(quickstart):
    given = {"federate": {"total_round_num": 3}, "ggeur.steps": [1], "seed": "7"}
    cfg = load_config(quickstart, given)
    assert (cfg.federate.total_round_num, cfg.ggeur.steps, cfg.seed) == (3, [1], 7)


def test_values_may_be_numpys(quickstart):
    """A grid's often are."""
    given = {
        "seed": np.int64(7),
        "train.optimizer.lr": np.float32(0.5),
        "ggeur.closed_form": np.str_("lda"),
        "ggeur.lda.standardize": np.True_,
        "ggeur.steps": [np.int8(1)],
        "data.splits": np.array([0.5, 0.2, 0.3]),
    }
    plain = {name: np.array(value).tolist() for name, value in given.items()}
    assert repr(load_config(quickstart, given)) == repr(load_config(quickstart, plain))


def test_settings_of_an_encoder_fall_with_it():
    """Those of a file, if another encoder is named behind it."""
    file, hog = "ggeur_own_images.yaml", ["ggeur.encoder.name", "hog"]
    assert load_config(file).ggeur.encoder.model == "ViT-B-16"
    encoder = load_config(file, hog).ggeur.encoder
    assert (encoder.name, encoder.model, encoder.pretrained) == ("hog", "", "")
    with pytest.raises(ConfigError, match="encoder 'hog' does not use this"):
        load_config(file, [*hog, "ggeur.encoder.model", "ViT-B-32"])


BY_TEST_ROWS = ["eval.best_res_update_round_wise_key", "test_acc"]


@pytest.mark.parametrize("path", example_configs(), ids=lambda path: path.stem)
def test_a_config_is_taken_as_it_is(path):
    cfg = load_config(path)
    again = load_config(cfg)
    assert again == load_config(to_plain(cfg)) == cfg
    assert again is not cfg
    assert again.is_frozen()
    assert cfg.eval.best_res_update_round_wise_key.startswith("val_")
    assert load_config(cfg, {"seed": 99}).seed == 99
    assert cfg.seed != 99


def test_values_are_cast_as_fs_casts_them(quickstart):
    given = ["train.optimizer.lr", "1", "ggeur.round0_window", "4", "seed", "7.0"]
    cfg = load_config(quickstart, [*given, "expname", "2024"])
    assert (cfg.train.optimizer.lr, cfg.ggeur.round0_window, cfg.seed) == (1.0, 4.0, 7)
    assert isinstance(cfg.train.optimizer.lr, float)
    assert isinstance(cfg.seed, int)
    # YAML reads 1e-5 as a text, yacs and FS as a number.
    assert cfg.train.optimizer.weight_decay == 1e-5
    assert cfg.expname == "2024"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (["federate.clientnum", "3"], r"federate\.clientnum.*client_num\?"),
        (["nosuch.key", "3"], r"nosuch\.key"),
        (["seed", "2.5"], r"seed: expected int, got float 2\.5"),
        (["seed", "True"], "seed: expected int, got bool"),
        (["seed", "abc"], "seed: expected int"),
        (["federate", "3"], "federate: is a section"),
        (["ggeur.step1_size", "2.5"], r"step1_size.*whole number"),
        (["ggeur.privacy.min_samples", "0"], r"ggeur\.privacy\.min_samples: must be"),
        (["ggeur.steps", "[2, 1]"], r"ggeur\.steps: must be"),
        (["ggeur.weight", "statistics", "ggeur.steps", "[]"],
         r"ggeur\.weight: cannot be statistics"),
        (["ggeur.prototypes", "others"], r"prototypes: must be domain or client"),
        (["ggeur.space", "white"], r"ggeur\.space: must be one of standard, raw"),
        (["federate.mode", "distributed"], r"federate\.mode.*standalone"),
        (["use_gpu", "2"], "use_gpu"),
        (["model.type", "convnet2"], r"model\.type.*write ggeur_head, or remove"),
        (["trainer.type", "cvtrainer"], r"trainer\.type.*write ggeur_trainer"),
        (["criterion.type", "NLLLoss"], r"criterion\.type.*write CrossEntropyLoss"),
        (["criterion.type", "MSELoss"], r"criterion\.type.*write CrossEntropyLoss"),
        (["expname", "../x"], r"expname: must lie within outdir.*'\.\./x'"),
        (["expname", "a/../../x"], r"expname: must lie within outdir"),
        (["expname", "/tmp/x"], r"expname: must lie within outdir"),
        (["expname_tag", "/../../x"], r"expname_tag: must lie within outdir"),
        (["model.type", "lr"], r"model\.type.*write ggeur_head, or remove"),
        (["trainer.type", "general"], r"trainer\.type.*write ggeur_trainer"),
        (["data.batch_size", "32"], r"data\.batch_size.*dataloader\.batch_size"),
        (["aggregator.robust_rule", "krum"], r"aggregator\.robust_rule.*embedded"),
        (["data.splitter", "''"], r"data\.splitter"),
        (["federate.client_num", "0"], r"federate\.client_num"),
        (["federate.sample_client_rate", "1.5"], r"federate\.sample_client_rate"),
        (["federate.sample_client_num", "0"], r"federate\.sample_client_num"),
        (["ggeur.memory_limit", "1e999"], r"ggeur\.memory_limit: must be finite"),
        (["data.splits", "[0.7, 0.0, 1e999]"], r"data\.splits: must be finite"),
        (["data.splits", "[0.7, 0.3]"], r"data\.splits"),
        (["data.splitter", "metis"], r"data\.splitter: .*'metis'"),
        (["data.splitter_args", "[{'beta': 1}]"], r"data\.splitter_args"),
        (["data.type", "toy"], r"data\.type 'toy'"),
        (["eval.metrics", "[['acc']]"], r"eval\.metrics"),
        (["dataloader.batch_size", "99999999999999999999"], r"dataloader\.batch_size"),
        (["ggeur.num_threads", "1000000"], r"ggeur\.num_threads"),
        # What would take for ever.
        (["federate.client_num", "1000000000"], r"federate\.client_num"),
        (["train.local_update_steps", "2147483648"], r"local_update_steps"),
        # What float32 cannot hold, within a value.
        (["train.optimizer.betas", "[0.9, 1e308]"], r"betas: must lie in -1e\+15"),
        (["data.splitter_args", "[{'alpha': 1e308}]"], r"args: must lie in -1e\+15"),
        (["train.scheduler.type", "ExponentialLR"], r"scheduler\.type: must be one of"),
        (["train.scheduler.step_size", "0"], r"step_size: must be a whole number"),
        (["train.scheduler.gamma", "1.5"], r"gamma: must be above 0 and at most 1"),
        (["train.scheduler.T_max", "5"], r"T_max: .*StepLR takes step_size and gamma"),
        (["train.batch_or_epoch", "batch", "dataloader.shuffle", "False"],
         r"dataloader\.shuffle"),
        (["train.optimizer.momentum", "[0.9]"], r"train\.optimizer: torch refuses"),
        (["federate.method", "FedAvg"], r"federate\.method"),
        (["expname", "a\nINFO \x1b[2J"], r"expname: must hold no .*, got 'a\\nINFO"),
        (["expname_tag", "a\u202eb"], r"expname_tag: must hold no line end"),
        ([*BY_TEST_ROWS, "early_stop.patience", "5"],
         r"early_stop\.patience: must be 0 with .*test_"),
        (["ggeur.closed_form", "qda"],
         r"ggeur\.closed_form: there is no qda any more: take rda"),
        (["ggeur.qda.shrinkage", "0.5"],
         r"ggeur\.qda\.shrinkage: there is no qda any more: take rda"),
        (["ggeur.fisher.samples", "100"],
         r"ggeur\.fisher\.samples: there is no fisher any more: take ridge"),
         (["ggeur.tensorboard", "True"], r"ggeur\.tensorboard: .*metrics\.csv"),
        (["early_stop.patience", "-1"], r"early_stop\.patience"),
        (["early_stop.delta", "-0.5"], r"early_stop\.delta"),
        (["early_stop.improve_indicator_mode", "last"], r"improve_indicator_mode"),
        (["eval.split", "['test', 'dev']"], r"eval\.split"),
        (["eval.split", "[]"], r"eval\.split"),
        (["eval.report", "['group_avg']"], r"eval\.report"),
        (["eval.best_res_update_round_wise_key", "val_f1"], r"round_wise_key.*val_f1"),
        (["model.dropout", "1.0"], r"model\.dropout"),
        (["train.batch_or_epoch", "step"], "batch_or_epoch"),
        (["train.optimizer.type", "Rprop"], r"train\.optimizer\.type"),
        (["train.optimizer.nestrov", "True"], r"train\.optimizer\.nestrov"),
        (["train.optimizer.nesterov", "True", "train.optimizer.momentum", "0.0"],
         r"train\.optimizer.*[Nn]esterov"),
        (["train.optimizer.momentum", "-1.0"], r"train\.optimizer.*momentum"),
        (["train.optimizer.lr", "-1"], r"train\.optimizer\.lr"),
        (["fedprox.use", "True"], r"fedprox\.use"),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused_by_name(quickstart, override, message):
    with pytest.raises(ConfigError, match=message):
        load_config(quickstart, override)


def test_all_problems_are_listed_at_once(quickstart):
    wrong = {
        "no.key": "1",
        "seed": "x",
        "model.type": "convnet2",
        "data.type": "toy",
        "data.splitter": "metis",
        "data.splits": "[1, 2]",
        "train.optimizer.nestrov": "True",
        "ggeur.scale": "y",
        "ggeur.num_generated_per_sample": "5",
    }
    with pytest.raises(ConfigError) as caught:
        load_config(quickstart, [part for pair in wrong.items() for part in pair])
    assert all(name in str(caught.value) for name in wrong)
    assert str(quickstart) in str(caught.value)


def test_optimizer_settings_take_any_number(rewritten):
    path = rewritten(("momentum: 0.9", "momentum: 0"))
    assert load_config(path).train.optimizer.momentum == 0
    overrides = ["train.optimizer.momentum", "0.5"]
    assert load_config(path, overrides).train.optimizer.momentum == 0.5


@pytest.mark.parametrize(
    ("config", "given", "said"),
    [
        ("", ["federate.total_round_num=1", "a"], "total_round_num=1.*without '='"),
        ("", ["federate.client_num"], r"federate\.client_num.*no value"),
        (3, [], r"a config must be a path, .* got 3"),
        ("", "federate.total_round_num 2", "must be a dict, or a list of keys"),
        ({"nosuch": {"key": 3}}, [], r"^wrong settings:(.|\n)* nosuch\.key"),
    ],
)
def test_what_is_no_config_and_no_settings_is_named(quickstart, config, given, said):
    with pytest.raises(ConfigError, match=said):
        load_config(config or quickstart, given)


def test_a_bare_config_says_what_must_be_set():
    with pytest.raises(ConfigError) as caught:
        load_config(None)
    for name in ("federate.method", "data.type"):
        assert name in str(caught.value)
    for name in ("trainer.type", "model.type", "criterion.type"):
        assert name not in str(caught.value)


def with_numbers() -> list[str]:
    """Every key whose default is a number, and options of torch's optimisers."""
    found = [
        key
        for key, value in flatten(to_plain(default_config()))
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    options = ("momentum", "weight_decay", "dampening", "eps")
    return [*found, *(f"train.optimizer.{name}" for name in options)]


@each(
    key=st.sampled_from(sorted(set(with_numbers()))),
    value=st.floats(min_value=1e16, allow_nan=False) | st.sampled_from([1e39, 1e308]),
    sign=st.sampled_from([1, -1]),
)
@examples(60)
def test_a_number_that_float32_cannot_hold_in_use_is_refused(key, value, sign):
    given = {"federate.method": "ggeur", "ggeur.use": True, key: sign * value}
    with pytest.raises(ConfigError) as caught:
        load_config({"data.type": "digits_quickstart@ggeur", **given})
    assert f"  {key}: " in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "near"),
    [
        ("ggeur.base_metod", "fedavg", "ggeur.base_method"),
        ("client_num", 4, "federate.client_num"),
        ("ggeur.base_method", "FedPorx", "fedprox"),
        ("ggeur.closed_form", "LDA", "lda"),
        ("ggeur.space", "standrd", "standard"),
        ("ggeur.encoder.name", "open-clip", "open_clip"),
        ("data.splitter", "natral", "natural"),
        ("data.type", "pacs", "pacs@ggeur"),
    ],
)
def test_the_nearest_known_name_is_asked_for(key, value, near):
    with pytest.raises(ConfigError) as caught:
        load_config("ggeur_quickstart", {key: value})
    (line,) = [line for line in caught.value.lines if key in line]
    assert line.endswith(f"; did you mean {near}?")


# A YAML file is a config, or refused in one line.


BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi")
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("seed: 1\nseed: 2\n", "line 2: the key 'seed' appears twice"),
        ("ggeur:\n  use: True\n  use: False\n", "line 3: the key 'ggeur.use' appears"),
        ("seed: &a [*a]\n", "contains itself"),
        ("seed: &a {b: *a}\n", "contains itself"),
        (BOMB, "holds more than 10000 values"),
        ("a: " + "[" * 50 + "]" * 50, "more than 20 nested levels"),
        ("a: " + "[\n " * 2_000, "nested too deeply"),
        ("a: " + "1" * 2**20, "longer than 1 MiB"),
        ("a: [1,\nb: 2", "is not valid YAML: line 2: expected ',' or ']'"),
        ("a:\n\tb: 1", "is not valid YAML: line 2: found character"),
        ("day: 2020-13-45", "is not valid YAML"),
        ("? [1, 2]\n: 3", "is not valid YAML"),
        ("- 1", "must hold 'key: value' lines"),
        ("x" * 5000, "must hold 'key: value' lines"),
        (b"\x00\xff", "is no text in UTF-8"),
        ("# nothing\n", "is empty: it has no settings"),
    ],
    ids=range(16),
)
def test_what_is_no_config_is_refused_in_one_line(tmp_path, text, problem):
    path = tmp_path / "config.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        list(read_yaml(path))
    assert problem in str(caught.value)
    assert str(path) in str(caught.value)
    assert str(caught.value).count(str(path)) == 1
    assert "\\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_aliases_and_merges_that_a_config_has_are_read(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("a: &a {x: 1, y: [2, 3]}\nb: *a\nc:\n  <<: *a\n  y: 4\n")
    assert dict(read_yaml(path)) == {
        "a.x": 1, "a.y": [2, 3], "b.x": 1, "b.y": [2, 3], "c.x": 1, "c.y": 4,
    }  # fmt: skip


def test_an_empty_section_is_no_value(tmp_path, quickstart):
    path = tmp_path / "config.yaml"
    path.write_text(quickstart.read_text() + "seed: {}\n")
    with pytest.raises(ConfigError, match=r"seed: expected int, got dict \{\}"):
        load_config(path)
    path.write_text(quickstart.read_text() + "grad: {}\n")
    assert load_config(path).grad.grad_clip == load_config(quickstart).grad.grad_clip


@pytest.mark.slow
@pytest.mark.parametrize("key", ["seed", "ggeur.scale", "ggeur.domain", "data.root"])
def test_long_values_are_cut_in_messages(quickstart, key):
    for value in ([[]] * 100_000, {str(n): n for n in range(100)}, 10**5000):
        with pytest.raises(ConfigError) as caught:
            load_config(quickstart, {key: value})
        assert len(str(caught.value)) < 2500


# FederatedScope's (FS's) defaults need not be written, its other keys may be.


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


def test_a_file_that_fs_wrote_may_hold_its_defaults():
    wrote = {"cfg_file": "", "criterion.type": "MSELoss", "model.type": "lr"}
    cfg = load_config(LEAST, wrote)
    assert cfg.criterion.type == "CrossEntropyLoss"
    assert idle_notes(cfg) == []


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
