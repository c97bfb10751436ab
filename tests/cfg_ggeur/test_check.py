"""The config extension, on yacs' CfgNode and on FederatedScope's CN."""

import pytest
import torch
from image_miniatures import draw_tree
from yacs.config import CfgNode

from federatedscope_ggeur import cfg_ggeur
from federatedscope_ggeur.cfg_ggeur.check import given_handshake
from federatedscope_ggeur.cfg_ggeur.keys import DeadlineKeys
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.run_settings import (
    encoder_device,
    encoding_settings,
    experiment_name,
    local_schedule,
    run_settings,
    training_device,
    training_settings,
)
from federatedscope_ggeur.engines.run import load_data_set, run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation import CosineSchedule

BASE = {
    "federate": {"method": "ggeur", "client_num": 3},
    "data": {"type": "digits_quickstart@ggeur", "splitter": "iid"},
    "ggeur": {"use": True},
}


def load(**values) -> CfgNode:
    return load_config(BASE, {f"ggeur.{name}": v for name, v in values.items()})


def test_defaults_are_valid_and_never_none():
    cfg = load()
    for key in cfg_ggeur.all_keys():
        assert cfg_ggeur.get_key(cfg.ggeur, key.name) is not None
        assert key.meaning.endswith(".")


def test_defaults_are_not_shared_between_configs():
    first, second = load(), load()
    first.ggeur.steps.append(1)
    assert second.ggeur.steps == [1, 2]


def test_every_key_is_described():
    text = cfg_ggeur.describe_keys()
    assert all(f"ggeur.{key.name} = " in text for key in cfg_ggeur.all_keys())


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
    [("paper", SIZE_KEYS[:2]), ("release", SIZE_KEYS[:3]), ("document", SIZE_KEYS[2:])],
)
def test_a_rule_of_sizes_takes_its_own_numbers_alone(rule, takes):
    load(sizes=rule, **dict.fromkeys(takes, 7.0))
    for name in set(SIZE_KEYS) - set(takes):
        message = rf"ggeur\.{name}: .*ggeur\.sizes: {rule}"
        with pytest.raises(ConfigError, match=message):
            load(sizes=rule, **{name: 7.0})


def test_use_and_method_go_together():
    with pytest.raises(ConfigError, match=r"federate\.method"):
        load_config(BASE, {"federate.method": "FedAvg"})
    with pytest.raises(ConfigError, match=r"ggeur\.use"):
        load(use=False)


def test_an_unused_section_of_federatedscopes_config_may_be_stripped(federatedscope):
    cfg = federatedscope.global_cfg.clone()
    cfg_ggeur.extend_ggeur_cfg(cfg)
    cfg.ready_for_run()
    assert list(cfg.ggeur) == ["use"]
    cfg.assert_cfg()


# Which device FederatedScope's `use_gpu` and `device` mean on this machine.


CPU = torch.device("cpu")


@pytest.fixture
def gpus(monkeypatch):
    """Tell torch how much memory is free on each GPU of this machine."""

    def there_are(*free: int):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(free))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(free))
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda n: (free[n], 10))

    return there_are


@pytest.mark.parametrize(
    ("settings", "free", "expected"),
    [
        ({}, (1, 3, 2), CPU),
        ({"device": 1}, (1, 3, 2), CPU),
        ({"use_gpu": True}, (1, 3, 2), torch.device("cuda", 1)),
        ({"use_gpu": True, "device": 0}, (1, 3, 2), torch.device("cuda", 0)),
        ({"use_gpu": True, "device": 0}, (), CPU),
    ],
)
def test_the_device(quickstart, gpus, settings, free, expected):
    gpus(*free)
    cfg = load_config(quickstart, settings)
    assert training_device(cfg) == expected
    settings = run_settings(cfg, 10, 16, 4)
    assert settings.role.training.device == expected
    encoding = encoding_settings(cfg.ggeur, encoder_device(cfg))
    assert encoding.device == ("auto" if expected == CPU else str(expected))


def test_an_encoder_with_a_device_of_its_own_keeps_it(quickstart, gpus):
    gpus(1, 2)
    cfg = load_config(quickstart, {"use_gpu": True, "ggeur.encoder.device": "cpu"})
    assert encoding_settings(cfg.ggeur, encoder_device(cfg)).device == "cpu"


def test_a_gpu_that_is_not_there_is_named(quickstart, gpus):
    gpus(1, 2)
    with pytest.raises(ConfigError, match="device: there is no GPU 5, torch sees 2"):
        training_device(load_config(quickstart, {"use_gpu": True, "device": 5}))


@pytest.mark.slow
def test_without_gpu_a_run_warns_and_goes_on(quickstart, gpus, caplog):
    gpus()
    plain = {"federate.total_round_num": 1}
    asked = run(quickstart, overrides={**plain, "use_gpu": True})
    (warning,) = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert warning == "No GPU found for your device, set cfg.use_gpu=False"
    found = run(quickstart, overrides=plain)
    assert asked.rounds[0].accuracy == found.rounds[0].accuracy


# What a run is called.


def test_the_name_is_the_one_given_or_made_of_the_main_settings(config):
    assert experiment_name(config("expname", "mine", "expname_tag", "a")) == "mine_a"
    made = experiment_name(config("expname", ""))
    assert made == "ggeur_ggeur_head_on_embeddings@ggeur_lr0.01_lstep1"


# Keys of distributed runs, and what settings alone say of the data.


CLASSES = [str(label) for label in range(12)]
ENCODER = "unknown (precomputed embeddings)"


def test_deadlines_are_no_longer_than_a_clock_can_wait():
    assert len(DeadlineKeys.declared()) == 6
    for key in DeadlineKeys.declared():
        assert key.rule(1e9) == key.rule(0.5) == ""
        assert "1e+09" in key.rule(1e10)
        assert bool(key.rule(0.0)) == (key.name != "deadline.return")


def test_what_settings_say_of_the_data(config):
    assert given_handshake(config().ggeur) == {}
    settings = ("ggeur.agreed.class_names", ["a", "b"], "ggeur.agreed.encoder", "e")
    said = given_handshake(config("ggeur.embedding_dim", 5, *settings).ggeur)
    assert said == {"dim": 5, "class_names": ("a", "b"), "encoder": "e"}


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [("class_names", CLASSES, ["cat", "dog"]), ("encoder", ENCODER, "ViT-B-16")],
)
def test_data_that_are_others_are_refused(config, key, right, wrong):
    assert run(config(f"ggeur.agreed.{key}", right)).rounds
    with pytest.raises(ConfigError, match=rf"ggeur\.agreed\.{key}: is .* have "):
        run(config(f"ggeur.agreed.{key}", wrong))


def test_data_that_lack_an_agreed_class_need_the_list(config):
    with pytest.raises(ConfigError, match=r"all classes in class_names\.txt in data"):
        run(config("ggeur.agreed.class_names", [*CLASSES, "emu"]))


def test_the_agreed_classes_stand_for_the_list_of_folders_of_images(tmp_path):
    draw_tree(tmp_path / "images", ["mine"], ["cat", "dog"])
    own = {
        "data.root": str(tmp_path / "images"),
        "ggeur.encoder.name": "pixels",
        "ggeur.encoder.cache": str(tmp_path / "cache"),
    }

    def of(*names):
        cfg = load_config(
            "ggeur_own_images", {**own, "ggeur.agreed.class_names": [*names]}
        )
        return load_data_set(cfg)

    found, plain = of("emu", "dog", "cat"), of()
    assert found.class_names == ("emu", "dog", "cat")
    (mine,), (before,) = found.domains, plain.domains
    assert mine.train.labels.equal(2 - before.train.labels)
    with pytest.raises(
        ConfigError, match=r"agreed\.class_names: is .* have .'cat', 'd"
    ):
        of("cat", "emu")


# ``train.scheduler``: the rate over rounds.


def scheduled(*words):
    base = ["federate.method", "ggeur", "ggeur.use", True, "train.optimizer.lr", 0.2]
    base += ["data.type", "digits_quickstart@ggeur"]
    return load_config(None, [*base, *words])


def test_there_is_none_by_default():
    cfg = scheduled()
    assert local_schedule(cfg) is None
    training = training_settings(cfg)
    assert training.in_round(7) is training


def test_it_falls_by_steps_of_rounds():
    cfg = scheduled(
        *("train.scheduler.type", "StepLR", "train.scheduler.step_size", 3),
        *("train.scheduler.gamma", 0.5),
    )
    training = training_settings(cfg)
    rates = [training.in_round(r).optimizer.lr for r in range(1, 8)]
    assert rates == [0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.05]
    assert training.in_round(0).optimizer.lr == 0.2


def test_it_falls_as_half_a_cosine():
    """The rates of torch's own schedule, one step a round."""
    cosine = ["train.scheduler.type", "CosineAnnealingLR"]
    cfg = scheduled(
        *cosine, *("train.scheduler.T_max", 5, "train.scheduler.eta_min", 0.02)
    )
    training = training_settings(cfg)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.2)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5, 0.02)
    for number in range(1, 7):
        rate = training.in_round(number).optimizer.lr
        assert rate == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()
    assert training.in_round(9).optimizer.lr == pytest.approx(0.02)
    whole = scheduled(*cosine, "federate.total_round_num", 8)
    assert local_schedule(whole) == CosineSchedule(8)
    first = local_schedule(scheduled(*cosine, "train.scheduler.first_rate", 1e-5))
    assert first.rate(0.2, 1) == 1e-5
    assert first.rate(0.2, 2) > 0.1


# Settings of heads, statistics and calibration that cannot go together.


LDA = ["ggeur.closed_form", "lda"]
START = ["ggeur.init", "closed_form"]
STATISTICS, GEOMETRY = "ggeur.statistics", ["ggeur.geometry", "pooled"]
CCVR, BEST = ["ggeur.calibrate", "ccvr"], ["ggeur.keep", "best"]
PERSONAL = ["ggeur.personal.head", "means"]
SHARE = ["ggeur.epoch_share", 0.5]
NO_MEANS = "statistics: must be needed or class or summed or compressed with"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (START, "init: must be random .* take .*lda"),
        (["ggeur.closed_form", "mixture", *START], "init: must be random .*: mixture"),
        (["ggeur.closed_form", "svm"], "closed_form: must be one of"),
        ([*LDA, "ggeur.mlp_hidden_dim", 8], "mlp_hidden_dim: must be 0"),
        ([*LDA, *CCVR], "calibrate: must be none"),
        (["ggeur.lda.shrinkage", 1.5], "lda.shrinkage: "),
        (["ggeur.ridge.strength", 0.0], "ridge.strength: "),
        (["ggeur.ridge.alpha", 1.0], "ridge.alpha: set ggeur.ridge.strength"),
        (BEST, "keep"),
        ([*LDA, *BEST], "keep"),
        ([*LDA, *START, *BEST, *CCVR], "keep"),
        (
            [*START, *BEST, "ggeur.base_method", "local"],
            "keep: must be trained with .*local",
        ),
        ([*LDA, "ggeur.confidences", True, "ggeur.temperature", "none"], "confidences"),
        ([*PERSONAL, "ggeur.closed_form", "ridge"], "personal.head"),
        ([*PERSONAL, *LDA, "ggeur.temperature", "none"], "personal.head"),
        (["ggeur.geometry", "shared"], "geometry: must be one of"),
        (["ggeur.compressed.dtype", "int4"], "compressed.dtype: must be"),
        (["ggeur.compressed.rank", 0], "compressed.rank: must be"),
        ([STATISTICS, "summed"], "statistics: summed needs one of"),
        ([STATISTICS, "means"], "statistics: means needs one of"),
        ([STATISTICS, "compressed"], "compressed needs one of .*geometry: pooled"),
        (
            [*LDA, *START, STATISTICS, "summed"],
            "statistics: must be needed or class with ggeur.steps",
        ),
        (
            [*LDA, STATISTICS, "means"],
            f"{NO_MEANS} ggeur.closed_form: lda, which needs the scatter "
            "within classes",
        ),
        (
            ["ggeur.closed_form", "ncm", *START, STATISTICS, "means", *GEOMETRY],
            f"{NO_MEANS} ggeur.geometry: pooled",
        ),
        (
            [*GEOMETRY, STATISTICS, "summed", *CCVR],
            "statistics: must be needed or class with ggeur.calibrate: ccvr",
        ),
        ([*SHARE, "ggeur.steps", "[]"], "must be 1 in a run without an augmented set"),
        ([*SHARE, *LDA], "must be 1 in a run without"),
        ([*SHARE, "train.batch_or_epoch", "batch"], "must be 1 with train.batch_or_e"),
        ([*SHARE, "train.optimizer.type", "Adam"], "must be SGD with ggeur.epoch_sh"),
        (["ggeur.epoch_share", 1.5], "must be above 0 and at most 1"),
    ],
    ids=lambda given: " ".join(map(str, given)) if isinstance(given, list) else "",
)
def test_contradictions_are_refused_by_name(config, settings, problem):
    with pytest.raises(ConfigError, match=problem):
        config(*settings)


def test_a_one_shot_head_beside_a_method_is_accepted(config):
    """With training, too: test_fedmix_takes_no_threshold_beside_class_statistics."""
    assert config(*LDA, "ggeur.base_method", "scaffold").ggeur.closed_form == "lda"
