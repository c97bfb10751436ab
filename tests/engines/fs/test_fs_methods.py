"""The federated methods inside FederatedScope (FS): the embedded engine's numbers."""

from __future__ import annotations

import pytest
import torch
from processes import check_same_head
from safetensors.torch import load
from standalone import outcome, set_up

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError

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
ADAM = [
    "fedopt.optimizer.type", "Adam",
    "fedopt.optimizer.lr", 0.1,
    "fedopt.optimizer.betas", [0.8, 0.9],
    "fedopt.optimizer.eps", 0.01,
]  # fmt: skip
SAMPLED = ["federate.client_num", 6, "federate.sample_client_num", 2]
MLP = ["ggeur.mlp_hidden_dim", 6, "model.dropout", 0.2]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        *METHODS.items(),
        ("fedopt", ["fedopt.optimizer.momentum", 0.9]),
        ("fedopt", ADAM),
        ("fedopt", ["fedopt.optimizer.type", "Yogi"]),
        ("scaffold", SAMPLED),
        ("feddyn", [*SAMPLED, "federate.ignore_weight", True]),
        ("moon", [*SAMPLED, *MLP]),
        ("fedproto", MLP),
    ],
    ids=str,
)
def test_standalone_ends_with_the_same_head(fs, config, method, settings):
    settings = ["ggeur.base_method", method, *settings]
    there, here = fs.run(*settings), Run(config(*settings))
    results = here.follow(lambda record: None)
    head = load(here.head_bytes())
    assert there.head.keys() == head.keys()
    assert all(torch.equal(there.head[name], head[name]) for name in head)
    assert outcome(there.results) == outcome(results)


@pytest.mark.parametrize("method", METHODS)
def test_distributed_ends_with_the_same_head(fleet, embedded, method):
    settings = ["ggeur.base_method", method, *METHODS[method]]
    settings += ["federate.client_num", 3]
    one = fleet(*settings)
    server = one.server()
    clients = [one.client(number) for number in (1, 2, 3)]
    check_same_head(server, clients, embedded(*settings))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (["fedprox.use", True], r"fedprox\.use: must be False"),
        (["ggeur.base_method", "fedprox", "fedopt.use", True], r"fedopt\.use: must be"),
        (["ggeur.base_method", "fedprox", "fedprox.mu", -1.0], r"fedprox\.mu: "),
        (
            ["ggeur.base_method", "fedopt", "fedopt.optimizer.type", "RMSprop"],
            r"fedopt\.optimizer\.type: ",
        ),
        (
            ["ggeur.base_method", "fedopt", "fedopt.annealing", True],
            r"fedopt\.annealing: ",
        ),
        (
            ["ggeur.base_method", "scaffold", "train.optimizer.lr", 0.0],
            r"train\.optimizer\.lr: ",
        ),
        (["ggeur.base_method", "moon", "ggeur.moon.mu", -1.0], r"ggeur\.moon\.mu: "),
    ],
)
def test_wrong_settings_are_refused_by_name(fs, settings, problem):
    with pytest.raises(ConfigError, match=problem):
        fs.set_up(also=settings)


@pytest.mark.parametrize(
    ("method", "section"),
    [("fedopt", "fedopt.optimizer"), ("scaffold", "train.optimizer")],
)
def test_arguments_of_optimizers_are_refused_by_name(fs, method, section):
    # FS takes keys that are new to it from a file alone.
    path = fs.file("ggeur.base_method", method, f"{section}.momentum", 0.75)
    text = path.read_text().replace(
        "momentum: 0.75", "momentum: 0.75\n    nesterov: true"
    )
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"{section}\.nesterov: "):
        set_up(path)


@pytest.mark.parametrize("method", ["fedprox", "fedopt"])
def test_the_switch_follows_the_method(fs, method):
    cfg = fs.set_up("ggeur.base_method", method).config
    assert cfg[method].use
