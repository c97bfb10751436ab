"""The federated methods inside FederatedScope (FS): the embedded engine's numbers."""

from __future__ import annotations

import json

import pytest
import torch
from every_method import OTHERS, words
from processes import MODEL, check_same_head, numbers
from safetensors.torch import load, load_file
from standalone import assert_same, outcome, set_up

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.models import fold, named_tensors

pytestmark = pytest.mark.slow

ADAM = [
    "fedopt.optimizer.type", "Adam",
    "fedopt.optimizer.lr", 0.1,
    "fedopt.optimizer.betas", [0.8, 0.9],
    "fedopt.optimizer.eps", 0.01,
]  # fmt: skip
PLAIN = ["ggeur.steps", []]
SAMPLED = ["federate.client_num", 6, "federate.sample_client_num", 2]
MLP = ["ggeur.mlp_hidden_dim", 6, "model.dropout", 0.2]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        *((name, words(name)[2:]) for name in OTHERS),
        ("fedopt", ["fedopt.optimizer.lr", 0.5, "fedopt.optimizer.momentum", 0.9]),
        ("fedopt", ADAM),
        ("scaffold", SAMPLED),
        ("feddyn", [*SAMPLED, "federate.ignore_weight", True]),
        ("moon", [*SAMPLED, *MLP]),
        ("fedproto", MLP),
    ],
    ids=str,
)
def test_standalone_ends_with_the_same_head(fs, config, method, settings):
    settings = ["ggeur.base_method", method, *settings]
    assert_same(fs.run(*settings), Run(config(*settings)))


@pytest.mark.parametrize("method", ["scaffold", "feddyn", "fedproto", "moon"])
def test_distributed_ends_with_the_same_head(fleet, embedded, method):
    """Those that differ in what travels, and in what clients and server keep."""
    settings = [*words(method), "federate.client_num", 3]
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


class TestLocal:
    """Every client's own head is the one that it has on the embedded engine."""

    SETTINGS = ("ggeur.base_method", "local", "federate.make_global_eval", True)

    @pytest.mark.parametrize(
        "settings",
        [SAMPLED, MLP, ["ggeur.steps", [1]], ["ggeur.space", "standard", *PLAIN]],
        ids=str,
    )
    def test_standalone(self, fs, config, settings):
        settings = [*self.SETTINGS, *settings]
        there, here = fs.run(*settings), Run(config(*settings))
        assert outcome(there.results) == outcome(here.follow(lambda record: None))
        trained = [k for k, client in here.engine.clients.items() if client.state]
        assert trained
        for number, worker in there.runner.client.items():
            state = worker.trainer.client.state
            assert state.keys() == here.engine.clients[number].state.keys()
        for number in trained:
            client, worker = here.engine.clients[number], there.runner.client[number]
            own = client.state["params"]
            assert torch.equal(worker.trainer.client.state["params"], own)
            outside = fold(client.model, own, client.space)
            assert _holds(worker.model.state_dict(), client.model, outside)
        assert not (there.folder / "head.safetensors").exists()
        assert there.log.count("scored: each client's own model") == 1
        assert there.log.count("federate.make_global_eval has no effect") == 1

    @pytest.mark.slow
    def test_distributed(self, fleet, quickstart, words):
        settings = [*self.SETTINGS, "ggeur.steps", [1, 2]]
        here = Run(load_config(quickstart, [*words, *map(str, settings)]))
        results = here.follow(lambda record: None)
        one = fleet(*settings)
        server = one.server("data.root", "nowhere")
        workers = {number: one.client(number) for number in (1, 2, 3, 4)}
        assert [w.wait() for w in (server, *workers.values())] == [0] * 5
        assert numbers(server.results) == numbers(json.loads(results.to_json()))
        assert not (server.run_folder / "head.safetensors").exists()
        for number, worker in workers.items():
            client = here.engine.clients[number]
            model = load_file(worker.folder / MODEL)
            outside = fold(client.model, client.state["params"], client.space)
            assert _holds(model, client.model, outside)

    def test_heads_go_on_where_they_were(self, fs, config, tmp_path):
        path, settings = tmp_path / "checkpoint", [*self.SETTINGS, *SAMPLED]
        fs.run(*settings, "federate.save_to", path, "federate.total_round_num", 2)
        restored = fs.run(*settings, "federate.restore_from", path).results
        whole = Run(config(*settings)).follow(lambda record: None)
        assert outcome(restored) == outcome(whole)

    def test_a_client_trains_on_from_its_own_weights(self, fs):
        """By the methods of FS's trainers."""
        trainer = fs.set_up(*self.SETTINGS).runner.client[1].trainer
        first = trainer.train()[1]
        trainer.set_weights(torch.zeros_like(trainer.client.state["params"]))
        again = trainer.train()[1]
        client = trainer.client
        for model, number in ((first, 1), (again, 2)):
            assert _holds(model, client.model, client.states[number]["params"])

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("ggeur.unseen_domains", ["photo"]),
            ("aggregator.robust_rule", "median"),
            ("ggeur.calibrate", "ccvr"),
        ],
    )
    def test_what_needs_a_federation_is_refused_by_name(self, fs, key, value):
        with pytest.raises(ConfigError, match=rf"  {key}: .*local"):
            fs.set_up(*self.SETTINGS, also=[key, value])


def _holds(state, model, params) -> bool:
    """Whether a state dict of `model` has the weights `params`."""
    wanted = named_tensors(model, params)
    assert state.keys() == wanted.keys()
    return all(torch.equal(state[name], part) for name, part in wanted.items())


class TestCentralised:
    SETTINGS = ("ggeur.base_method", "centralised", "federate.client_num", 6)

    @pytest.mark.parametrize(
        "settings",
        [
            ["ggeur.steps", []],
            ["ggeur.steps", [1, 2], "federate.make_global_eval", True],
            ["federate.sample_client_num", 3, "ggeur.quorum", 4, *MLP],
            ["ggeur.unseen_domains", "['photo']", "federate.sample_client_rate", 0.5],
        ],
        ids=str,
    )
    def test_standalone(self, fs, config, settings):
        settings = [*self.SETTINGS, *settings]
        there, here = fs.run(*settings), Run(config(*settings))
        assert outcome(there.results) == outcome(here.follow(lambda record: None))
        model = load(here.history.head_bytes())
        assert all(torch.equal(there.model[name], model[name]) for name in model)
        assert list(there.runner.client) == [1]
        assert there.config.federate.client_num == 1
        for results in (there.results, here.history.results()):
            assert results.config["federate"]["client_num"] == 6

    def test_goes_on_where_it_was(self, fs, config, tmp_path):
        path = tmp_path / "checkpoint"
        short = ["federate.total_round_num", 2, "federate.save_to", path]
        fs.run(*self.SETTINGS, *short)
        restored = fs.run(*self.SETTINGS, "federate.restore_from", path)
        whole = Run(config(*self.SETTINGS)).follow(lambda record: None)
        assert outcome(restored.results) == outcome(whole)

    @pytest.mark.parametrize("role", ["server", "client"])
    def test_distributed_is_refused_by_name(self, fs, role):
        also = ["federate.mode", "distributed", "distribute.use", True]
        also += ["distribute.role", role, "distribute.data_idx", 1]
        with pytest.raises(ConfigError, match=r"  federate\.mode: .*centralised"):
            fs.set_up(*self.SETTINGS, also=also)
