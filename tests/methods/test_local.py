"""No federation: clients go on alone, and no weights ever travel."""

import pytest
import torch
from by_bytes import Federation, make_client_data, make_rows, score_of
from federations import LOCAL, MODELS, federate

from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.federation import evaluate
from federatedscope_ggeur.methods import Centralised, FedAvg, Local, initial_weights
from federatedscope_ggeur.models import ModelSettings, build_model


def test_a_client_that_is_not_drawn_keeps_its_head():
    federation = Federation(make_client_data(), Local(), training=LOCAL).round0()
    federation.train(1)
    client = federation.clients[2]
    before = client.state["params"]
    federation.training.sample = lambda number: [1, 3]
    federation.train(2)
    assert torch.equal(client.state["params"], before)
    report = score_of(client, federation.broadcast(2), TEST).scores["test"]
    assert report.loss_sum == score_at(federation, before).loss_sum


ROWS = make_rows(40, seed=99)
TEST = {"test": Embeddings(*ROWS, "a")}


def score_at(federation, params):
    return evaluate(federation.server.model, params, *ROWS)


def test_clients_score_their_own_heads():
    federation = federate(Local(), rounds=2)
    broadcast = federation.send(federation.broadcast(2))
    losses = set()
    for client in federation.clients.values():
        report = score_of(client, broadcast, TEST).scores["test"]
        wanted = score_at(federation, client.state["params"])
        assert (report.correct, report.loss_sum) == (wanted.correct, wanted.loss_sum)
        losses.add(report.loss_sum)
    assert len(losses) == 3


def test_a_client_that_was_never_drawn_scores_the_head_it_would_begin_with():
    federation = Federation(make_client_data(), Local()).round0()
    client = federation.clients[1]
    report = score_of(client, federation.broadcast(1), TEST).scores["test"]
    start = initial_weights(build_model(6, 4, ModelSettings()), seed=0)
    assert report.loss_sum == score_at(federation, start).loss_sum


def test_a_score_of_an_earlier_round_is_of_the_head_of_then():
    """As after a restart that repeats a round."""
    federation = federate(Local(), rounds=2)
    client = federation.clients[1]
    report = score_of(client, federation.broadcast(1), TEST).scores["test"]
    then = score_at(federation, client.states[1]["params"])
    now = score_at(federation, client.states[2]["params"])
    assert report.loss_sum == then.loss_sum != now.loss_sum


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_no_weights_travel(model):
    federation = Federation(make_client_data(), Local(), model=model).round0()
    assert federation.send(federation.broadcast(1)).params.shape == (0,)
    updates = federation.train(1)
    assert [update.params.shape for update in updates] == [(0,)] * 3
    assert all(update.steps > 0 and not update.upload for update in updates)
    before = federation.server.params
    federation.step(1, updates)
    assert torch.equal(federation.server.params, before)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("steps", [(), (1,)], ids=str)
def test_alone_a_client_gets_what_any_federation_of_one_gets(model, steps):
    options = {"model": model, "steps": steps, "sizes": (30,)}
    alone = federate(Local(), **options).clients[1].state["params"]
    for method in (FedAvg(), Centralised()):
        assert torch.equal(federate(method, **options).weights[-1], alone)
