"""What a user of FederatedScope (FS) tries first, with the real checkout."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from own_process import OF_FS, in_turn
from standalone import TOY, as_before, assert_same, merged, new_config, set_up

from federatedscope_ggeur.cfg_ggeur.fs_keys import fs_keys
from federatedscope_ggeur.cfg_ggeur.load import OTHER_KEYS, load_config
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError

ROOT = Path(__file__).parents[3]
DOMAINS = ("cloud", "day", "dusk", "fog", "night")


def applied(diff: list[str], lines: list[str]) -> list[str]:
    """`lines` after a diff whose ``@@`` skips some; what it takes out must be there."""
    after, left, skips = [], list(lines), False
    for line in diff:
        mark, content = line[:1], line[1:]
        if line == "@@":
            skips = True
        elif mark == "+":
            after.append(content)
        else:
            while skips and left[0] != content:
                after.append(left.pop(0))
            assert left[0] == content
            skips = False
            left.pop(0)
            after += [content] if mark == " " else []
    return after + left


@pytest.mark.slow
def test_femnist_on_one_s_own_data(federatedscope, tmp_path, monkeypatch):
    """FS's femnist.yaml after the diff in the docs, on small embeddings."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "federatedscope.md").read_text(encoding="utf-8")
    (diff,) = re.findall(r"^```diff\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    diff = diff.replace("image_folder@ggeur", "embeddings@ggeur").splitlines()
    changed = re.findall(r"-*\+*", "".join(line[:1] for line in diff))
    assert sum(max(one.count("-"), one.count("+")) for one in changed) <= 6
    checkout = Path(federatedscope.__file__).parents[3]
    given = checkout / "scripts" / "example_configs" / "femnist.yaml"
    lines = applied(diff, given.read_text(encoding="utf-8").splitlines())
    path = tmp_path / "femnist_ggeur.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "my_images").mkdir()
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    for name in DOMAINS:
        features = rng.normal(size=(60, 8)) + 3 * np.eye(8)[labels]
        np.savez(f"my_images/{name}.npz", features=features, labels=labels)
    short = ["federate.total_round_num", "12", "eval.freq", "3"]
    with as_before():
        there = set_up(path, [*short, "outdir", "exp"]).go()
    here = Run(load_config(path, short))
    assert len(here.data.clients) == len(DOMAINS)
    assert_same(there, here)
    assert there.results.final.chosen.key == "val_loss"
    (note,) = {line for line in here.describe() if "have no effect here" in line}
    for name in ("data.subsample", "data.transform", "model.hidden", "out_channels"):
        assert name in note
    assert note in there.log
    assert "No GPU found for your device, set cfg.use_gpu=False" in there.log


def test_every_key_of_fs_is_known_with_its_default(federatedscope):
    def keys(node, prefix=""):
        for name, value in node.items():
            if name.startswith("__") or name in ("is_ready_for_run", "ggeur"):
                continue
            if isinstance(value, type(node)):
                yield from keys(value, f"{prefix}{name}.")
            else:
                default = value.value if hasattr(value, "description") else value
                yield prefix + name, default

    theirs = dict(keys(new_config()))
    ours = {key.name: key.default for key in [*fs_keys(), *OTHER_KEYS.values()]}
    assert {name: ours.get(name, "unknown") for name in theirs} == theirs


LEAST = """\
federate: {method: ggeur, total_round_num: 2}
data: {type: digits_quickstart@ggeur, splits: [0.6, 0.2, 0.2]}
ggeur: {use: True, step1_size: 20, step2_size: 10}
"""


@pytest.fixture
def least(federatedscope, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "least.yaml"
    path.write_text(LEAST)
    with as_before():
        yield path


@pytest.mark.slow
def test_a_file_needs_only_what_differs(least):
    idle = ["federate.share_local_model", "True", "federate.online_aggr", "True"]
    there = set_up(least, idle).go()
    assert there.config.model.type == "ggeur_head"
    assert_same(there, Run(load_config(least, idle)))


def test_a_default_of_fs_that_somebody_wrote_is_refused(least):
    least.write_text(f"{LEAST}criterion: {{type: MSELoss}}\n")
    with pytest.raises(ConfigError, match=r"criterion\.type.*write CrossEntropyLoss"):
        merged(least)


def test_without_the_plugin_fs_has_its_own_defaults_back(least):
    off = ["ggeur.use", "False", "federate.method", "FedAvg", "data.type", "toy"]
    cfg = merged(least, off)
    theirs = new_config(plugin=False)
    for section in ("model", "trainer", "criterion"):
        assert cfg[section].type == theirs[section].type


# FederatedScope's own main, run by this package's command.


CLIENTS = "\n".join(
    f"client_{i}: {{train: {{local_update_steps: {i + 1}, optimizer: {{lr: 0.1}}}}}}"
    for i in range(4)
)


@pytest.fixture
def toy(tmp_path) -> Path:
    (tmp_path / "toy.yaml").write_text(TOY)
    return tmp_path


@pytest.fixture
def home(federatedscope) -> Path:
    return Path(federatedscope.__file__).parents[3]


@pytest.mark.slow
def test_federatedscope_itself(toy, home, monkeypatch):
    monkeypatch.setenv("FEDERATEDSCOPE_HOME", str(home))
    (toy / "clients.yaml").write_text(CLIENTS)
    command = ["-m", "federatedscope_ggeur", "--engine", "federatedscope"]
    command += ["--cfg", "toy.yaml", "--client_cfg", "clients.yaml"]
    command += ["federate.total_round_num", "1", "client_1.train.optimizer.lr", "0.25"]
    ((status, said),) = in_turn([[*command, "expname", "here"]], toy, first=OF_FS)
    assert status == 0, said
    assert "Server: Final evaluation is finished" in said
    config = (toy / "exp" / "here" / "config.yaml").read_text()
    assert "ggeur:\n  use: false\n" in config
    assert "total_round_num: 1" in config
    log = (toy / "exp" / "here" / "exp_print.log").read_text()
    assert "lr: 0.25" in log
    assert "local_update_steps: 3" in log


@pytest.fixture
def launched(toy, monkeypatch, ggeur):
    """What a run on FederatedScope that cannot begin says."""

    def launch(*words: str) -> str:
        config = ["--engine", "federatedscope", "--cfg", str(toy / "toy.yaml")]
        return ggeur(*config, *words, status=1).err

    return launch


def test_no_federatedscope(launched, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "federatedscope", None)
    monkeypatch.delenv("FEDERATEDSCOPE_HOME", raising=False)
    error = launched()
    assert error.startswith("error: FederatedScope was not found")
    for way in ("git clone", "pip install", "enable FOLDER"):
        assert way in error
    monkeypatch.setenv("FEDERATEDSCOPE_HOME", str(tmp_path))
    assert f"FEDERATEDSCOPE_HOME: the folder '{tmp_path}' is no" in launched()


def test_what_is_missing_is_named(launched, monkeypatch, home):
    assert "--client_cfg: the file 'no.yaml' does not exist" in launched(
        "--client_cfg", "no.yaml"
    )
    monkeypatch.setitem(sys.modules, "pympler", None)
    error = launched()
    assert "not installed: pympler." in error
    assert "pip install 'federatedscope-ggeur[federatedscope]'" in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--quiet", "verbose 0"),
        ("--log-level debug", "verbose 0"),
        ("--dry-run", "leave out --engine federatedscope"),
    ],
)
def test_what_federatedscope_has_no_option_for_is_refused(ggeur, words, said):
    command = ["--engine", "federatedscope", "--cfg", "ggeur_quickstart.yaml"]
    error = ggeur(*command, "seed", "1", *words.split(), status=1).err
    assert words.split()[0] in error.split(": ")[1]
    assert said in error
