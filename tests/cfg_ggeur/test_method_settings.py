"""`ggeur.base_method` and the settings of the methods, on the embedded engine."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.method_settings import method_settings
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError

#: Every method but FedAvg, with settings it cannot do without to have an effect.
METHODS = {
    "fedprox": ["fedprox.mu", 0.5],
    "scaffold": [],
    "moon": [],
    "feddyn": [],
    "fedopt": ["fedopt.optimizer.lr", 0.5],
    "fedavgm": [],
    "fedproto": [],
    "fedntd": [],
}


@pytest.fixture
def model(config):
    """The final head of a run, as one vector."""

    def run(*settings):
        one = Run(config(*settings))
        one.follow(lambda record: None)
        parts = load(one.head_bytes())
        return torch.cat([parts[name].flatten() for name in sorted(parts)])

    return run


@pytest.mark.parametrize("hidden", [0, 6])
@pytest.mark.parametrize("steps", [[], [1], [1, 2]], ids=str)
def test_every_method_runs_and_has_an_effect(model, steps, hidden):
    base = [
        "ggeur.steps", steps,
        "ggeur.mlp_hidden_dim", hidden,
        "ggeur.step1_size", 8,
        "ggeur.step2_size", 4,
        "federate.total_round_num", 2,
    ]  # fmt: skip
    heads = {"fedavg": model(*base)}
    for name, settings in METHODS.items():
        heads[name] = model(*base, "ggeur.base_method", name, *settings)
    assert all(torch.isfinite(found).all() for found in heads.values())
    names = list(heads)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            assert not torch.equal(heads[first], heads[second]), (first, second)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedprox", ["fedprox.mu", 1]),
        ("scaffold", ["ggeur.scaffold.server_lr", 0.25]),
        ("moon", ["ggeur.moon.mu", 2]),
        ("moon", ["ggeur.moon.temperature", 1]),
        ("feddyn", ["ggeur.feddyn.alpha", 0.1]),
        ("fedavgm", ["ggeur.fedavgm.momentum", 0.5]),
        ("fedavgm", ["ggeur.fedavgm.lr", 0.5]),
        ("fedproto", ["ggeur.fedproto.strength", 1]),
        ("fedntd", ["ggeur.fedntd.beta", 2]),
        ("fedntd", ["ggeur.fedntd.temperature", 2]),
        ("fedopt", ["fedopt.optimizer.lr", 1]),
        ("fedopt", ["fedopt.optimizer.momentum", 0.9]),
        ("fedopt", ["fedopt.optimizer.type", "Adam"]),
        ("fedopt", ["fedopt.optimizer.type", "Yogi"]),
        ("fedopt", ["fedopt.optimizer.type", "Adagrad"]),
    ],
)
def test_every_setting_has_an_effect(model, name, settings):
    base = ["ggeur.base_method", name, *METHODS[name]]
    assert not torch.equal(model(*base, *settings), model(*base))


@pytest.mark.parametrize("kind", ["Adam", "Yogi", "Adagrad"])
@pytest.mark.parametrize(
    "settings",
    [["fedopt.optimizer.betas", [0.5, 0.5]], ["fedopt.optimizer.eps", 1]],
    ids=["betas", "eps"],
)
def test_every_setting_of_an_adaptive_server_has_an_effect(model, kind, settings):
    base = ["ggeur.base_method", "fedopt", "fedopt.optimizer.type", kind]
    assert not torch.equal(model(*base, *settings), model(*base))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedavg", {}),
        # FederatedScope's own defaults, for its own keys.
        ("fedprox", {"mu": 0.0}),
        ("fedopt", {"type": "SGD", "lr": 0.01}),
        ("scaffold", {"server_lr": 1.0}),
        ("moon", {"mu": 1.0, "temperature": 0.5}),
        ("feddyn", {"alpha": 0.5}),
        ("fedavgm", {"momentum": 0.9, "lr": 1.0}),
        ("fedproto", {"strength": 2.0}),
        ("fedntd", {"beta": 1.0, "temperature": 1.0}),
    ],
)
def test_defaults(quickstart, name, settings):
    cfg = load_config(quickstart, ["ggeur.base_method", name])
    assert method_settings(cfg) == settings


@pytest.mark.parametrize("hidden", [0, 6])
def test_neutral_settings_are_fedavg_to_the_bit(model, hidden):
    base = ["ggeur.mlp_hidden_dim", hidden, "model.dropout", 0.2]
    plain = model(*base)
    for name, *setting in (
        ("fedprox", "fedprox.mu", 0.0),
        ("moon", "ggeur.moon.mu", 0.0),
        ("fedproto", "ggeur.fedproto.strength", 0.0),
        ("fedntd", "ggeur.fedntd.beta", 0.0),
    ):
        assert torch.equal(model(*base, "ggeur.base_method", name, *setting), plain)


class TestSwitches:
    """`ggeur.base_method` is the one selector; FS's switches follow it."""

    @pytest.mark.parametrize("name", ["fedprox", "fedopt"])
    def test_they_follow(self, quickstart, name):
        switch = [f"{name}.use", "True"]
        for given in ([], switch):
            cfg = load_config(quickstart, ["ggeur.base_method", name, *given])
            assert [cfg.fedprox.use, cfg.fedopt.use] == [
                name == "fedprox",
                name == "fedopt",
            ]

    @pytest.mark.parametrize(
        ("method", "switch"),
        [
            ("fedavg", "fedprox"),
            ("fedavg", "fedopt"),
            ("scaffold", "fedprox"),
            ("scaffold", "fedopt"),
            ("fedprox", "fedopt"),
            ("fedopt", "fedprox"),
        ],
    )
    def test_one_of_another_method_is_refused(self, quickstart, method, switch):
        words = ["ggeur.base_method", method, f"{switch}.use", "True"]
        problem = rf"{switch}\.use: must be False with ggeur\.base_method: {method}"
        with pytest.raises(ConfigError, match=problem):
            load_config(quickstart, words)

    def test_fedprox_without_a_weight_says_so(self, quickstart, caplog):
        with caplog.at_level(logging.WARNING):
            load_config(quickstart, ["ggeur.base_method", "fedprox"])
        assert "fedprox.mu is 0" in caplog.text


@pytest.mark.parametrize(
    ("method", "key", "values"),
    [
        ("fedprox", "fedprox.mu", [-0.1, "x"]),
        ("scaffold", "ggeur.scaffold.server_lr", [0, -1]),
        ("scaffold", "train.optimizer.nesterov", [True]),
        ("scaffold", "train.optimizer.dampening", [0.1]),
        ("scaffold", "train.optimizer.maximize", [True]),
        ("scaffold", "train.optimizer.momentum", [1.0]),
        ("scaffold", "train.optimizer.lr", [0]),
        ("moon", "ggeur.moon.mu", [-1]),
        ("moon", "ggeur.moon.temperature", [0]),
        ("feddyn", "ggeur.feddyn.alpha", [0, -1, "1e999"]),
        ("fedavgm", "ggeur.fedavgm.momentum", [-0.1, 1]),
        ("fedavgm", "ggeur.fedavgm.lr", [0]),
        ("fedproto", "ggeur.fedproto.strength", [-1]),
        ("fedntd", "ggeur.fedntd.beta", [-1]),
        ("fedntd", "ggeur.fedntd.temperature", [0]),
        ("fedopt", "fedopt.optimizer.type", ["RMSprop"]),
        ("fedopt", "fedopt.optimizer.lr", [-1]),
        ("fedopt", "fedopt.optimizer.momentum", [1, -0.1, True, "x"]),
        ("fedopt", "fedopt.optimizer.nesterov", [True]),
        ("fedopt", "fedopt.optimizer.betas", [[0.9, 0.99]]),  # of SGD
        ("fedopt", "fedopt.annealing", [True]),
    ],
)
def test_what_a_method_cannot_take_is_refused_by_name(quickstart, method, key, values):
    for value in values:
        with pytest.raises(ConfigError, match=rf"{key}: "):
            load_config(quickstart, ["ggeur.base_method", method, key, str(value)])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("betas", [[0.9], [0.9, 1.0], [-0.1, 0.9], 0.9, "x", [0.9, True]]),
        ("eps", [0, -1e-3, "x", True]),
        ("momentum", [0.9]),
    ],
)
def test_what_an_adaptive_server_cannot_take_is_refused_by_name(
    quickstart, name, values
):
    key = f"fedopt.optimizer.{name}"
    adam = ["ggeur.base_method", "fedopt", "fedopt.optimizer.type", "Adam"]
    for value in values:
        with pytest.raises(ConfigError, match=rf"{key}: "):
            load_config(quickstart, [*adam, key, str(value)])


def test_scaffold_refuses_adam(rewritten):
    path = rewritten(("momentum: 0.9", "type: Adam"))
    assert load_config(path).train.optimizer.type == "Adam"
    with pytest.raises(ConfigError, match=r"train\.optimizer\.type: must be SGD"):
        load_config(path, ["ggeur.base_method", "scaffold"])


def documented() -> list[list[str]]:
    """The YAML blocks of docs/methods.md as words of a command line."""
    text = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    return [words(yaml.safe_load(block)) for block in blocks]


def words(content, prefix="") -> list[str]:
    if not isinstance(content, dict):
        return [prefix[:-1], str(content)]
    return [
        w for key, value in content.items() for w in words(value, f"{prefix}{key}.")
    ]


def test_the_lines_of_the_documentation_are_taken(quickstart):
    found = {}
    for lines in documented():
        cfg = load_config(quickstart, lines)
        found[cfg.ggeur.base_method] = method_settings(cfg)
    assert found == {
        "scaffold": {"server_lr": 0.25},
        "moon": {"mu": 1.0, "temperature": 0.5},
        "feddyn": {"alpha": 0.5},
        "fedopt": {"type": "SGD", "lr": 0.5, "momentum": 0.9},
        "fedproto": {"strength": 2.0},
        "fedntd": {"beta": 1.0, "temperature": 1.0},
    }
