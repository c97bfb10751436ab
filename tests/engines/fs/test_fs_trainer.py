"""The trainer by the interface that FederatedScope (FS) gives one."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import (
    AugmentationClient,
)
from federatedscope_ggeur.federation.exchanges.training.exchange import TrainingClient
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast
from federatedscope_ggeur.models import load_vector, to_vector


@pytest.fixture
def trainer(fs):
    """Client 2's, before the run."""
    there = fs.set_up("ggeur.steps", [], "ggeur.mlp_hidden_dim", 4)
    return there.runner.client[2].trainer


@pytest.mark.slow
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


@pytest.mark.slow
def test_train_after_round_0_trains_on_the_augmented_set(fs):
    there = fs.run()
    trainer = there.runner.client[1].trainer
    before = to_vector(trainer.model)
    rows, _, _ = trainer.train()
    assert rows == trainer.client.recipe.rows > len(trainer.client.features)
    assert not torch.equal(to_vector(trainer.model), before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (("ggeur.base_method", "scaffold"), "scaffold"),
        (("ggeur.augmentation", "fedmix"), r"fedavg \+ fedmix"),
    ],
)
def test_train_alone_says_that_a_method_needs_the_server(fs, settings, name):
    trainer = fs.set_up(*settings).runner.client[2].trainer
    with pytest.raises(GGEURError, match=f"{name} needs the server's messages") as said:
        trainer.train()
    assert "\n" not in str(said.value)


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


@pytest.mark.slow
def test_nothing_to_score_is_no_error(trainer):
    assert trainer.print_trainer_meta_info() == "GGEURTrainer(MLPHead)"
    trainer.data["test"] = {key: part[:0] for key, part in trainer.data["test"].items()}
    assert trainer.evaluate()["test_acc"] == 0.0
    assert trainer.evaluate()["test_total"] == 0


@pytest.mark.slow
def test_the_server_s_trainer_scores(fs):
    there = fs.run("federate.make_global_eval", True)
    *_, last = [x["Results_raw"] for x in there.lines() if x["Round"] == 3]
    found = there.server.trainer.evaluate()
    assert found["test_total"] > 0
    assert found == {name: last[name] for name in found}
