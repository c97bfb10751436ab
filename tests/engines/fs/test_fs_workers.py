"""The server and client workers in FederatedScope (FS): its handlers and its queue."""

import atexit
import logging

import numpy as np
import pytest
import torch
from standalone import assert_same, merged, set_up

from federatedscope_ggeur import models
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.federation import evaluate
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import (
    AugmentationClient,
)
from federatedscope_ggeur.federation.exchanges.training.exchange import TrainingClient
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast


def workers() -> tuple[type, type]:
    # Imported late: the protobuf module must be mended first.
    from federatedscope_ggeur.engines.fs import register

    register()
    from federatedscope_ggeur.engines.fs.client import GGEURClient
    from federatedscope_ggeur.engines.fs.server import GGEURServer

    return GGEURClient, GGEURServer


def test_every_message_that_is_sent_is_handled_and_none_of_fs_s_own(federatedscope):
    client, server = (worker.get_msg_handler_dict() for worker in workers())
    for here, there in ((client, server), (server, client)):
        sent = {m for _, out in here.values() for m in out if m is not None}
        assert sent <= there.keys()
        # Without a config, as FS makes them to look at them.
        for kind in ("assign_client_id", "address", "ss_model_para"):
            assert kind not in here


@pytest.fixture
def at_exit(monkeypatch):
    """What is to be called at the end of the process."""
    functions = []

    def unregister(function):
        functions[:] = [one for one in functions if one != function]

    monkeypatch.setattr(atexit, "register", functions.append)
    monkeypatch.setattr(atexit, "unregister", unregister)
    return functions


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "last"),
    [
        (["train.optimizer.lr", 3e6], 1),
        (["train.optimizer.lr", 1e9, "train.local_update_steps", 20], 0),
    ],
    ids=["after a round", "at once"],
)
def test_what_was_over_is_written_when_the_process_ends(fs, at_exit, settings, last):
    """FS has no place where a run that fails could be ended."""
    fs.run()
    assert not at_exit  # a run that ended well leaves nothing to do
    there = fs.set_up(*settings)
    with pytest.raises(GGEURError) as error:
        there.go()
    for part in (f"client 1, round {last + 1}", "lower train.optimizer.lr"):
        assert part in str(error.value)
    assert not (there.folder / "results.json").exists()
    (function,) = at_exit
    function()
    assert (there.folder / "results.json").exists() == (last > 0)
    if last:
        assert there.results.status == "failed"
        assert [record.round for record in there.results.rounds] == [1]
        assert all(tensor.isfinite().all() for tensor in there.model.values())


HOOKS = "Hook-like plug-in functions cannot be enabled when using <x.{}>"
AGGREGATOR = "Aggregator for method {} is not implemented. Will use default one"
PROCESSES = "We found the number of gpu is insufficient, thus cfg.federate.{}"


@pytest.mark.parametrize(
    ("module", "said", "false", "true"),
    [
        ("core.auxiliaries.trainer_builder", HOOKS, "GGEURTrainer", "Mine"),
        ("core.auxiliaries.aggregator_builder", AGGREGATOR, "ggeur", "mine"),
        ("core.configs.cfg_fl_setting", PROCESSES, "process_num=0", "process_num=2"),
    ],
)
def test_fs_warns_of_what_is_not_ours_as_ever(
    federatedscope, module, said, false, true
):
    workers()
    logger = logging.getLogger(f"federatedscope.{module}")
    for what, heard in ((false, False), (true, True)):
        text = said.format(what)
        record = logger.makeRecord(logger.name, 30, "", 0, text, (), None)
        assert bool(logger.filter(record)) == heard


# The data function and the model builder in FederatedScope (FS): its data objects.
#
# Who holds which rows is `data/`'s matter. Here they are put into FS's dict of splits,
# by role, with the sizes that FS's model builder needs. Tests of engines/fs/data.py and
# engines/fs/registration.py.


@pytest.fixture
def get(fs):
    """FS's own `get_data` for a role."""

    def get(*settings, also=()):
        from federatedscope.core.auxiliaries.data_builder import get_data

        return get_data(merged(fs.file(*settings), also).clone())

    return get


def distributed(role: str, **settings) -> list:
    words = ["federate.mode", "distributed", "distribute.role", role]
    names = {"data_idx": "distribute.data_idx", "number": "ggeur.client_number"}
    for name, value in settings.items():
        words += [names.get(name, f"ggeur.{name}"), value]
    return words


@pytest.mark.parametrize("hidden", [0, 6])
def test_the_model_s_sizes_are_those_of_the_data(get, hidden):
    from federatedscope.core.auxiliaries.model_builder import get_model

    data, cfg = get("ggeur.mlp_hidden_dim", hidden, "model.dropout", 0.3)
    model = cfg.model
    assert (model.hidden, model.out_channels, model.input_shape) == (hidden, 12, (16,))
    expected = models.build_model(16, 12, models.ModelSettings(hidden, 0.3))
    for number in (0, 1):  # the server's first split has no rows
        made = get_model(model, data[number])
        assert repr(made) == repr(expected)
        assert made(torch.zeros(2, 16)).shape == (2, 12)


def test_a_server_without_data_gets_an_empty_model(get):
    from federatedscope.core.auxiliaries.model_builder import get_model

    data, cfg = get(also=distributed("server"))
    assert data is None
    assert not list(get_model(cfg.model, None).parameters())
    assert get()[0][0].rows["test"] == {}


def test_other_types_are_left_to_fs(federatedscope):
    from federatedscope_ggeur.engines.fs.registration import find_data, find_model

    cfg = federatedscope.global_cfg.clone()
    assert find_data(cfg) is None
    assert find_model(cfg.model, (3,)) is None


def test_the_seed_is_the_user_s_again(get):
    """FS loads data under a seed of its own."""

    def draw() -> tuple[float, float]:
        return np.random.rand(), torch.rand(1).item()  # noqa: NPY002

    get("seed", 5)
    drawn = draw()
    from federatedscope.core.auxiliaries.utils import setup_seed

    setup_seed(5)
    assert drawn == draw()


@pytest.mark.parametrize(
    ("also", "problem"),
    [
        ({"data_idx": -1, "domain": "art"}, r"ggeur\.client_number: must be set"),
        ({"data_idx": -1, "number": 2}, r"ggeur\.domain: must name"),
        ({"data_idx": 0}, r"distribute\.data_idx: must lie in 1\.\.3"),
        ({"data_idx": 4}, r"distribute\.data_idx: must lie in 1\.\.3"),
        ({"data_idx": 2, "number": 1}, r"ggeur\.client_number: is 1, but"),
    ],
)
def test_who_a_client_is_must_be_said_once(get, also, problem):
    with pytest.raises(ConfigError, match=problem):
        get(also=distributed("client", **also))


def test_each_process_is_one_client(get):
    get(also=distributed("client", data_idx=3))


# The trainer by the interface that FederatedScope (FS) gives one.


@pytest.fixture
def trainer(fs):
    """Client 2's, before the run."""
    there = fs.set_up("ggeur.steps", [], "ggeur.mlp_hidden_dim", 4)
    return there.runner.client[2].trainer


@pytest.mark.slow
def test_train_is_the_round_that_every_engine_trains(trainer, config):
    here = Run(config("ggeur.steps", [], "ggeur.mlp_hidden_dim", 4)).engine
    params = here.server.params
    models.load_vector(trainer.model, params)
    client = here.clients[2]
    here.side(2, AugmentationClient).prepare(None, None)
    for number in (1, 2):
        rows, weights, results = trainer.train()
        sent = Broadcast(number, params)
        params = here.side(2, TrainingClient).train(sent).params
        assert torch.equal(models.to_vector(trainer.model), params)
        assert rows == len(client.features)
        assert results == {}
        assert weights.keys() == trainer.model.state_dict().keys()


@pytest.mark.slow
def test_weights_are_copies(trainer):
    weights = trainer.get_model_para()
    for tensor in weights.values():
        tensor.fill_(1)
    assert not any((t == 1).all() for t in trainer.model.state_dict().values())
    trainer.update(weights)
    assert all((t == 1).all() for t in trainer.model.state_dict().values())


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_evaluate_gives_fs_s_metrics_of_the_model(fs, split):
    validated = ["data.splits", [0.5, 0.2, 0.3], "eval.split", ["test", "val"]]
    trainer = fs.set_up("ggeur.mlp_hidden_dim", 4, *validated).runner.client[2].trainer
    found = trainer.evaluate(split)
    rows = getattr(trainer.data.held, split)
    params = models.to_vector(trainer.model)
    score = evaluate(trainer.model, params, rows.features, rows.labels)
    assert score.total > 0
    assert found == pytest.approx(score.metrics(split))


@pytest.mark.slow
def test_the_server_s_trainer_scores(fs):
    there = fs.run("federate.make_global_eval", True)
    *_, last = [x["Results_raw"] for x in there.lines() if x["Round"] == 3]
    found = there.server.trainer.evaluate()
    assert found["test_total"] > 0
    assert found == {name: last[name] for name in found}


# Federated methods in FederatedScope (FS): its switches and keys, and its trainers.
#
# `fedprox.use` and `fedopt.use` are FS's own switches, `fedopt.optimizer` is its own
# section. Clients with models of their own keep them in FS's trainers.


ADAM = [
    "ggeur.base_method", "fedopt",
    "fedopt.optimizer.type", "Adam",
    "fedopt.optimizer.lr", 0.1,
    "fedopt.optimizer.betas", [0.8, 0.9],
    "fedopt.optimizer.eps", 0.01,
]  # fmt: skip


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
