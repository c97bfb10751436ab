"""Federated methods in FederatedScope (FS): its switches and keys, and its trainers.

`fedprox.use` and `fedopt.use` are FS's own switches, `fedopt.optimizer` is its own
section. Clients with models of their own keep them in FS's trainers.
"""

from __future__ import annotations

import pytest
import torch
from standalone import assert_same, set_up

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.models import fold, named_tensors

ADAM = [
    "ggeur.base_method", "fedopt",
    "fedopt.optimizer.type", "Adam",
    "fedopt.optimizer.lr", 0.1,
    "fedopt.optimizer.betas", [0.8, 0.9],
    "fedopt.optimizer.eps", 0.01,
]  # fmt: skip
LOCAL = ("ggeur.base_method", "local", "federate.make_global_eval", True)


@pytest.mark.slow
def test_fs_s_own_section_is_the_server_s_optimiser(fs, config):
    there = fs.run(*ADAM)
    assert there.config.fedopt.use
    assert_same(there, Run(config(*ADAM)))


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


@pytest.mark.slow
def test_every_client_s_own_head_is_in_its_trainer(fs, config):
    settings = [*LOCAL, "ggeur.space", "standard", "ggeur.steps", "[]"]
    there, here = fs.run(*settings), Run(config(*settings))
    here.follow(lambda record: None)
    for number, worker in there.runner.client.items():
        client = here.engine.clients[number]
        own = client.state["params"]
        assert torch.equal(worker.trainer.client.state["params"], own)
        outside = fold(client.model, own, client.space)
        assert _holds(worker.model.state_dict(), client.model, outside)
    assert there.log.count("scored: each client's own model") == 1
    assert there.log.count("federate.make_global_eval has no effect") == 1


@pytest.mark.slow
def test_all_rows_in_one_place_are_one_client_of_fs_s(fs):
    pooled = ("ggeur.base_method", "centralised", "federate.client_num", 6)
    there = fs.set_up(*pooled)
    assert list(there.runner.client) == [1]
    assert there.config.federate.client_num == 1
    also = ["federate.mode", "distributed", "distribute.use", True,
            "distribute.data_idx", 1]  # fmt: skip
    with pytest.raises(ConfigError, match=r"  federate\.mode: .*centralised"):
        fs.set_up(*pooled, also=also)


@pytest.mark.slow
def test_a_client_trains_on_from_its_own_weights(fs):
    """By the methods of FS's trainers."""
    trainer = fs.set_up(*LOCAL).runner.client[1].trainer
    first = trainer.train()[1]
    trainer.set_weights(torch.zeros_like(trainer.client.state["params"]))
    again = trainer.train()[1]
    client = trainer.client
    for model, number in ((first, 1), (again, 2)):
        assert _holds(model, client.model, client.states[number]["params"])


def _holds(state, model, params) -> bool:
    """Whether a state dict of `model` has the weights `params`."""
    wanted = named_tensors(model, params)
    assert state.keys() == wanted.keys()
    return all(torch.equal(state[name], part) for name, part in wanted.items())
