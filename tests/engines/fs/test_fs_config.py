"""Settings mean the same inside FederatedScope (FS) and on the embedded engine.

Tests of engines/fs/registration.py.
"""

import sys
from pathlib import Path

import pytest
from standalone import TOY, as_before, merged, outcome, set_up

from federatedscope_ggeur.cfg_ggeur import all_keys, get_key
from federatedscope_ggeur.cfg_ggeur.fs_keys import fs_keys
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.fs.config import check
from federatedscope_ggeur.errors import ConfigError, MessageError

EXAMPLES = Path(__file__).parents[3] / "scripts" / "example_configs"
DEFAULTS = {
    **{key.name: key.default for key in fs_keys()},
    **{f"ggeur.{key.name}": key.default for key in all_keys()},
}


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=str)
def test_every_example_has_the_same_values(federatedscope, example):
    here, there = load_config(example), merged(example)
    check(there)
    for name in DEFAULTS.keys() - {"federate.process_num"}:
        assert get_key(there, name) == get_key(here, name), name
    optimizer = {k: v for k, v in there.train.optimizer.items() if "__" not in k}
    optimizer.pop("is_ready_for_run")
    assert optimizer == dict(here.train.optimizer)


@pytest.mark.parametrize(
    ("given", "wrong", "right"),
    [
        ("use: True", "use: True\n  steps: [3]", ["ggeur.steps", "[1]"]),
        ("client_num: 4", "client_num: 2147483648", ["federate.client_num", "4"]),
        ("method: ggeur", "method: FedAvg", ["federate.method", "ggeur"]),
        ("type: ggeur_head", "type: convnet2", ["model.type", "ggeur_head"]),
    ],
)
def test_a_wrong_value_in_the_file_can_be_overridden(
    federatedscope, rewritten, given, wrong, right
):
    path = rewritten((given, wrong))
    with pytest.raises(ConfigError):
        load_config(path)
    with pytest.raises(ConfigError):
        check(merged(path))
    assert load_config(path, right).ggeur.use
    check(merged(path, right))


@pytest.mark.parametrize("plugin_first", [False, True])
def test_a_number_of_clients_that_comes_later_counts(
    federatedscope, quickstart, plugin_first
):
    """FS writes the number of clients in place of sample_client_num: -1."""
    cfg = merged(quickstart, ["federate.client_num", "9"], plugin_first=plugin_first)
    assert cfg.federate.sample_client_num == -1
    cfg.freeze(inform=False, save=False)
    assert cfg.federate.sample_client_num == -1


def test_a_command_line_adds_keys_to_open_sections_as_a_file_does(federatedscope):
    words = ["train.optimizer.momentum", 0.9, "train.optimizer.nesterov", True]
    words += ["train.scheduler.type", "StepLR", "train.scheduler.step_size", 2]
    cfg = merged(EXAMPLES / "ggeur_quickstart.yaml", words)
    assert [get_key(cfg, name) for name in words[::2]] == words[1::2]


# FederatedScope's (FS's) --client_cfg for some clients only, or for all of them.


FASTER = "{train: {optimizer: {lr: 0.5}}}"


def rates(run) -> list[float]:
    return [
        client.trainer.client.settings.training.optimizer.lr
        for _, client in sorted(run.runner.client.items())
    ]


@pytest.mark.slow
def test_those_that_are_named_have_their_own(fs):
    there = fs.set_up(clients=f"client_2: {FASTER}")
    assert rates(there) == [0.01, 0.5, 0.01]
    every = "\n".join(
        f"client_{k}: {{train: {{optimizer: {{lr: {rate}}}}}}}"
        for k, rate in ((1, 0.01), (2, 0.5), (3, 0.01))
    )
    faster = outcome(there.go().results)
    plain = outcome(fs.run(clients="{}").results)
    assert faster == outcome(fs.run(clients=every).results)
    assert faster != plain == outcome(fs.run().results)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"client_9: {FASTER}", "client_9: there are only client_1 to client_3"),
        (f"klient_1: {FASTER}", "klient_1: there are only client_1 to client_3"),
        ("client_1:", "client_1: must hold settings, got"),
        (
            "client_1: {train: {optimiser: {lr: 1}}}",
            "client_1.train.optimiser.lr: there is no such key",
        ),
        (
            "client_2: {train: {local_update_steps: many}}",
            "client_2.train.local_update_steps: expected int, got str 'many'",
        ),
        (
            "client_2: {train: {optimizer: {lr: -1.0}}}",
            "client_2.train.optimizer.lr: must lie in 0",
        ),
        ("client_3: {ggeur: {weight: heavy}}", "client_3.ggeur.weight: must be one of"),
    ],
)
def test_what_cannot_be_is_named(fs, text, line):
    with pytest.raises(ConfigError) as error:
        fs.set_up(clients=text)
    first, *lines = str(error.value).splitlines()
    assert first == "wrong settings in --client_cfg:"
    (only,) = lines
    assert only.startswith(f"  {line}")


@pytest.mark.slow
def test_what_all_must_have_alike_is_compared(fs):
    there = fs.set_up(clients="client_3: {seed: 9}")
    with pytest.raises(MessageError, match=r"client 3.*seed"):
        there.go()


# A file with all that is common, and roles on the command line: no splitter is asked
# of who divides nothing, and nothing is checked before the command line is read.


COMMON = """\
federate: {method: ggeur, mode: distributed, client_num: 3, total_round_num: 3}
distribute: {use: True}
data: {type: embeddings@ggeur, root: data}
ggeur: {use: True}
"""
OWN = [
    "distribute.data_idx", "-1", "ggeur.domain", "art", "ggeur.client_number", "1"
]  # fmt: skip


SERVER = ["distribute.role", "server"]


@pytest.mark.parametrize(
    ("role", "refused"),
    [
        (SERVER, ""),
        (OWN, ""),
        ([*SERVER, "federate.make_global_eval", "True"], "splitter"),
        ([*SERVER, "ggeur.unseen_domains", "['art']"], "splitter"),
        (["distribute.data_idx", "2"], "splitter"),
        ([*SERVER, "data.splitter", "diagonal"], "splitter"),
        ([*SERVER, "federate.client_num", "0"], "client_num"),
        (["federate.mode", "standalone"], "splitter"),
        (["federate.mode", "standalone", "federate.client_num", "0"], ""),
    ],
    ids=str,
)
def test_a_splitter_is_asked_of_who_divides_rows(
    federatedscope, tmp_path, role, refused
):
    common = tmp_path / "common.yaml"
    common.write_text(COMMON)
    with as_before():
        if not refused:
            check(merged(common, role))
            return
        with pytest.raises((ConfigError, AssertionError), match=refused):
            check(merged(common, role))


# What FederatedScope (FS) can do and the plugin cannot is refused, all at once.


#: Key, wrong value, and the settings that it needs to get past FS's own checks.
WRONG = {
    "feat_engr.type": ["instance_norm"],
    "asyn.use": [True],
    "federate.use_ss": [True],
    "quantization.method": ["uniform"],
    "fedswa.use": [True],
    "nbafl.use": [True],
    "sgdmf.use": [True],
    "hpo.fedex.use": [True],
    "hpo.fts.use": [True],
    "hpo.pfedhpo.use": [True],
    "personalization.local_param": ["['fc']"],
    "attack.attack_method": ["DLG"],
    "vertical.use": [True],
    "finetune.before_eval": [True],
    "federate.process_num": [2],
    "fedprox.use": [True],
    "fedopt.use": [True],
    "aggregator.robust_rule": ["mean"],
    "model.model_num_per_trainer": [2],
    "model.type": ["convnet2"],
    "trainer.type": ["cvtrainer"],
    "criterion.type": ["NLLLoss"],
    "early_stop.patience": [5, "eval.best_res_update_round_wise_key", "test_acc"],
    "ggeur.steps": ["[3]"],
    # A list in place of a number, which FS takes.
    "federate.total_round_num": ["[1]"],
    "eval.metrics": [5],
    # FS's own checks fail on these, with an AssertionError.
    "federate.client_num": [0],
    "train.batch_or_epoch": ["rounds"],
}  # fmt: skip


def keys_in(error) -> list[str]:
    first, *lines = str(error.value).splitlines()
    assert first == "wrong settings:"
    return [line.split(":")[0].strip() for line in lines]


@pytest.mark.parametrize("plugin_first", [False, True])
def test_all_are_in_one_list(fs, plugin_first):
    also = [word for key, value in WRONG.items() for word in (key, *value)]
    with pytest.raises(ConfigError) as error:
        fs.set_up(also=also, plugin_first=plugin_first)
    assert sorted(keys_in(error)) == sorted(WRONG)


def test_fs_s_own_search_is_refused(federatedscope, fs, monkeypatch):
    program = Path(sys.modules["federatedscope"].__file__).with_name("hpo.py")
    monkeypatch.setattr(sys, "argv", [str(program)])
    with pytest.raises(ConfigError, match=r"hpo\.py: cannot search over runs"):
        fs.set_up()


@pytest.mark.parametrize("key", ["fedswa.use", "hpo.fedex.use", "federate.use_ss"])
def test_ours_comes_before_fs_s_own_complaint(fs, key):
    """The merge of the file is where FS's own check would fail."""
    settings = [key, "True", "federate.sample_client_num", 1, "vertical.use", "True"]
    with pytest.raises(ConfigError) as error:
        merged(fs.file(), settings)
    assert sorted(keys_in(error)) == sorted([key, "vertical.use"])
    assert isinstance(error.value.__cause__, AssertionError)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (["federate.method", "GGEUR"], r"ggeur\.use: must be True"),
        (
            ["data.type", "digits_quickstart@GGEUR", "data.splitter", "iid"],
            r"ggeur\.use: must be True",
        ),
        (["trainer.type", "ggeur_trainer"], r"ggeur_trainer needs a data\.type"),
    ],
)
def test_the_plugin_must_be_switched_on(fs, tmp_path, settings, problem):
    path = tmp_path / "toy.yaml"
    path.write_text(TOY)
    with pytest.raises(ConfigError, match=problem):
        set_up(path, ["outdir", tmp_path / "exp", *settings])


@pytest.mark.slow
def test_a_plain_run_of_fs_is_untouched(fs, tmp_path, monkeypatch):
    """Its results with the plugin registered are those without it."""
    from federatedscope import register

    path = tmp_path / "toy.yaml"
    path.write_text(TOY)
    settings = ["outdir", tmp_path / "exp"]
    with_it = set_up(path, settings).go()
    for registry in ("worker", "trainer", "data", "model"):
        monkeypatch.delitem(getattr(register, f"{registry}_dict"), "ggeur")
    without = set_up(path, settings, plugin=False).go()
    assert with_it.config.keys() - without.config.keys() == {"ggeur"}
    for name in ("eval_results.log", "eval_results.raw.gz"):
        assert _content(with_it, name) == _content(without, name)
    assert not (with_it.folder / "results.json").exists()
    ours, theirs = (run.server.model.state_dict() for run in (with_it, without))
    assert all(ours[name].equal(theirs[name]) for name in theirs)


def _content(run, name: str) -> bytes:
    import gzip

    data = (run.folder / name).read_bytes()
    return gzip.decompress(data) if name.endswith("gz") else data
