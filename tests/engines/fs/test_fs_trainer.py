"""The trainer by FederatedScope's (FS's) interface, and settings of single clients."""

from __future__ import annotations

import pytest
import torch
from standalone import outcome
from torch.nn.functional import cross_entropy

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError, GGEURError, MessageError
from federatedscope_ggeur.federation.exchanges import RequestKind
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import (
    AugmentationClient,
)
from federatedscope_ggeur.federation.exchanges.training.exchange import TrainingClient
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast
from federatedscope_ggeur.models import load_vector, to_vector

pytestmark = pytest.mark.slow


@pytest.fixture
def trainer(fs):
    """Client 2's, before the run."""
    there = fs.set_up("ggeur.steps", [], "ggeur.mlp_hidden_dim", 4)
    return there.runner.client[2].trainer


def test_train_is_the_round_that_every_engine_trains(trainer, config):
    here = Run(config("ggeur.steps", [], "ggeur.mlp_hidden_dim", 4)).engine
    params = here.server.params
    load_vector(trainer.model, params)
    client = here.clients[2]
    here.side(2, AugmentationClient).prepare(None, None)
    for number in (1, 2):
        rows, weights, results = trainer.train()
        sent = Broadcast(number, params)
        params = here.side(2, TrainingClient).train(sent).params
        assert torch.equal(to_vector(trainer.model), params)
        assert rows == len(client.features)
        assert results == {}
        assert weights.keys() == trainer.model.state_dict().keys()


def test_train_after_round_0_trains_on_the_augmented_set(fs):
    there = fs.run()
    trainer = there.runner.client[1].trainer
    before = to_vector(trainer.model)
    rows, _, _ = trainer.train()
    assert rows == trainer.client.recipe.rows > len(trainer.client.features)
    assert not torch.equal(to_vector(trainer.model), before)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (("ggeur.base_method", "scaffold"), "scaffold"),
        (("ggeur.base_method", "fedproto"), "fedproto"),
        (("ggeur.augmentation", "fedmix"), r"fedavg \+ fedmix"),
        (("ggeur.augmentation", "fedfa"), r"fedavg \+ fedfa"),
    ],
)
def test_train_alone_says_that_a_method_needs_the_server(fs, settings, name):
    trainer = fs.set_up(*settings).runner.client[2].trainer
    with pytest.raises(GGEURError, match=f"{name} needs the server's messages") as said:
        trainer.train()
    assert "\n" not in str(said.value)


def test_weights_are_copies(trainer):
    weights = trainer.get_model_para()
    for tensor in weights.values():
        tensor.fill_(1)
    assert not any((t == 1).all() for t in trainer.model.state_dict().values())
    trainer.update(weights)
    assert all((t == 1).all() for t in trainer.model.state_dict().values())


@pytest.mark.parametrize("split", ["train", "test"])
def test_evaluate_gives_fs_s_metrics_of_the_model(trainer, split):
    found = trainer.evaluate(split)
    rows = getattr(trainer.data.held, split)
    with torch.no_grad():
        logits = trainer.model.eval()(rows.features)
    correct = (logits.argmax(1) == rows.labels).sum().item()
    assert found[f"{split}_total"] == len(rows)
    assert found[f"{split}_correct"] == correct
    assert found[f"{split}_acc"] == correct / len(rows)
    loss = cross_entropy(logits, rows.labels, reduction="sum").item()
    assert found[f"{split}_loss"] == pytest.approx(loss)
    assert found[f"{split}_avg_loss"] == pytest.approx(loss / len(rows))
    assert len(found) == 5


def test_nothing_to_score_is_no_error(fs):
    there = fs.set_up()
    trainer = there.runner.client[1].trainer
    trainer.data["test"] = {key: part[:0] for key, part in trainer.data["test"].items()}
    assert trainer.evaluate()["test_acc"] == 0.0
    assert trainer.evaluate()["test_total"] == 0


def test_the_server_s_trainer_scores(fs):
    there = fs.run("federate.make_global_eval", True)
    *_, last = [x["Results_raw"] for x in there.lines() if x["Round"] == 3]
    found = there.server.trainer.evaluate()
    assert found["test_total"] > 0
    assert found == {name: last[name] for name in found}


def test_it_says_what_it_is(trainer):
    assert trainer.print_trainer_meta_info() == "GGEURTrainer(MLPHead)"


def test_an_unknown_request_is_refused(trainer):
    dance = RequestKind(
        name="dance",
        message="dance",
        deadline="train",
        parts=(),
        respond=lambda handler: None,
    )
    with pytest.raises(MessageError, match="to answer 'dance'"):
        trainer.answer(dance, ())


def clients(**settings) -> str:
    """An entry for every client, as FS itself wants it."""
    plain = "{train: {local_update_steps: 1}}"
    lines = [f"client_{k}: {settings.get(f'client_{k}', plain)}" for k in (1, 2, 3)]
    return "\n".join(lines)


class TestSingleClients:
    def test_one_client_s_learning_rate(self, fs):
        own = clients(client_2="{train: {optimizer: {lr: 0.5}}}")
        there = fs.set_up(clients=own)
        rates = [
            client.trainer.client.settings.training.optimizer.lr
            for _, client in sorted(there.runner.client.items())
        ]
        assert rates == [0.01, 0.5, 0.01]
        assert outcome(there.go().results) != outcome(fs.run().results)

    def test_the_same_settings_change_nothing(self, fs):
        assert outcome(fs.run(clients=clients()).results) == outcome(fs.run().results)

    def test_a_wrong_one_is_refused_by_name(self, fs):
        own = clients(client_3="{ggeur: {weight: heavy}}")
        with pytest.raises(ConfigError, match=r"ggeur\.weight: must be one of"):
            fs.set_up(clients=own)

    def test_what_all_must_have_alike_is_compared(self, fs):
        there = fs.set_up(clients=clients(client_3="{seed: 9}"))
        with pytest.raises(MessageError, match=r"client 3.*seed"):
            there.go()
