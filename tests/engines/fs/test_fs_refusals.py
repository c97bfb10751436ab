"""What FederatedScope (FS) can do and the plugin cannot is refused, all at once."""

from __future__ import annotations

import pytest
from standalone import merged, set_up

from federatedscope_ggeur.errors import ConfigError

TOY = """\
data: {type: toy}
model: {type: lr}
federate: {client_num: 3, total_round_num: 3}
train: {optimizer: {lr: 0.1}}
eval: {count_flops: False, best_res_update_round_wise_key: test_loss}
"""
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
