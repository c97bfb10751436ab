"""Client and server over the rounds: weights, refusals, reproducibility.

Tests of federation/memory.py, federation/server.py, federation/settings.py and
federation/task.py.
"""

from dataclasses import replace

import pytest
import torch
from by_bytes import SGD, Federation, make_client_data, make_rows, train_of

from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings
from federatedscope_ggeur.federation.exchanges.training.messages import ClientUpdate
from federatedscope_ggeur.methods import FedAvg
from federatedscope_ggeur.models import ModelSettings

DROPOUT = ModelSettings(hidden=8, dropout=0.5)


class TestWeights:
    def mean_by(self, updates, weights):
        total = sum(weights[u.client] for u in updates)
        parts = [u.params.double() * weights[u.client] / total for u in updates]
        return sum(parts).float()

    @pytest.mark.parametrize(
        ("weight", "ignore", "wanted"),
        [
            # 4 classes, at least 12 rows of each, and 5 around each other's prototype.
            ("augmented", False, None),
            ("original", False, {1: 10, 2: 40}),
            ("augmented", True, {1: 1, 2: 1}),
            ("original", True, {1: 1, 2: 1}),
        ],
    )
    def test_average_by_the_rows_asked_for(self, weight, ignore, wanted):
        federation = Federation(
            make_client_data((10, 40)),
            steps=(1, 2),
            weight=weight,
            ignore_weight=ignore,
        ).round0()
        rows = {k: client.recipe.rows for k, client in federation.clients.items()}
        updates = federation.train(1)
        federation.step(1, updates)
        torch.testing.assert_close(
            federation.server.params, self.mean_by(updates, wanted or rows)
        )

    def test_with_equal_weights_a_client_without_data_still_has_no_say(self):
        federation = Federation(make_client_data((10, 0, 40)), ignore_weight=True)
        federation.round0()
        updates = federation.train(1)
        federation.step(1, updates)
        torch.testing.assert_close(
            federation.server.params, self.mean_by(updates, {1: 1, 2: 0, 3: 1})
        )

    def test_a_round_of_clients_without_data_changes_nothing(self):
        federation = Federation(make_client_data((10, 0)), sample_client_num=1)
        weights = federation.run(8)
        for number in range(1, 9):
            moved = not torch.equal(weights[number], weights[number - 1])
            assert moved == (federation.training.sample(number) == [1])


OPTIONS = {
    "steps": (1, 2),
    "model": DROPOUT,
    "sample_client_num": 3,
    "training": replace(SGD, optimizer=OptimizerSettings("SGD", 0.05)),
}


class TestReproducibility:
    def run(self, **more):
        data = make_client_data((20, 0, 30, 25))
        return Federation(data, **{**OPTIONS, **more}).run(3)

    def test_rounds_change_the_weights(self):
        weights = self.run()
        assert not torch.equal(weights[1], weights[0])
        assert not torch.equal(weights[2], weights[1])

    def test_same_seed_same_bits_and_another_seed_others(self):
        first = self.run()
        torch.manual_seed(777)
        assert torch.equal(self.run(), first)
        assert not torch.equal(self.run(seed=1), first)

    @pytest.mark.parametrize(
        "order", [lambda ks: ks[::-1], lambda ks: [*ks[1:], *ks[:1]]]
    )
    def test_order_of_the_clients_does_not_matter(self, order):
        assert torch.equal(self.run(order=order), self.run())
        data = make_client_data((20, 0, 30, 25))
        joined = dict(order(list(data.items())))
        assert torch.equal(Federation(joined, **OPTIONS).run(3), self.run())

    @pytest.mark.parametrize("steps", [(), (1,)])
    def test_clients_of_the_same_rows_draw_differently(self, steps):
        rows = make_rows(20, seed=1)
        twins = {1: ("a", *rows), 2: ("b", *rows)}
        one, two = Federation(twins, steps=steps).round0().train(1)
        assert not torch.equal(one.params, two.params)

    @pytest.mark.parametrize("noise", ["fixed", "fresh"])
    def test_kept_and_rebuilt_sets_give_the_same_bits(self, noise):
        kept = self.run(noise=noise, memory=1e9)
        assert torch.equal(self.run(noise=noise, memory=0), kept)
        # Some sets fit, some do not.
        assert torch.equal(self.run(noise=noise, memory=3000), kept)

    def test_fresh_noise_is_another_set_each_round(self):
        assert torch.equal(self.run(noise="fresh")[0], self.run()[0])
        assert not torch.equal(self.run(noise="fresh")[2], self.run()[2])

    def test_first_weights_depend_on_the_seed_alone(self):
        first = self.run()[0]
        alone = Federation(make_client_data((9,)), model=DROPOUT).run(0)
        assert torch.equal(alone[0], first)


def test_the_method_sees_updates_in_client_order():
    class Look(FedAvg):
        def step(self, params, updates, state, context):
            self.clients = [update.client for update in updates]
            return params, state

    method = Look()
    federation = Federation(make_client_data((9,) * 5), method).round0()
    federation.step(1, reversed(federation.train(1)))
    assert method.clients == [1, 2, 3, 4, 5]


def test_training_that_diverges_says_who_when_and_what_to_change():
    data = make_client_data((20, 30))
    wild = TrainingSettings(OptimizerSettings("SGD", 1e30), 10, "epoch", 8)
    federation = Federation(data, training=wild, model=ModelSettings(hidden=8)).round0()
    message = r"client 1, round 1: .*diverged.*train\.optimizer\.lr \(now 1e\+30\)"
    with pytest.raises(GGEURError, match=message):
        federation.train(1)


def test_a_client_without_data_sends_back_what_it_got():
    federation = Federation(make_client_data((20, 0))).round0()
    update = federation.train(1)[1]
    assert (update.client, update.steps) == (2, 0)
    assert torch.equal(update.params, federation.server.params)


def test_training_learns():
    data = make_client_data((60, 80, 70))
    federation = Federation(data, steps=(1, 2))
    features, labels = make_rows(500, seed=99)
    federation.run(0)
    before = federation.evaluation.score_rows(features, labels)
    for number in range(1, 6):
        federation.step(number, federation.train(number))
    after = federation.evaluation.score_rows(features, labels)
    assert after.accuracy > 0.7 > before.accuracy
    assert after.loss_sum < before.loss_sum


def test_clients_score_what_was_broadcast_as_the_server_does():
    federation = Federation(make_client_data((20, 30)))
    federation.run(1)
    features, labels = make_rows(100, seed=99)
    broadcast = federation.send(federation.broadcast(1))
    rows = Embeddings(features, labels, "somewhere")
    report = federation.send(federation.score(2, broadcast, {"val": rows}), "client 2")
    score = federation.evaluation.score_rows(features, labels)
    assert (report.client, report.round_number) == (2, 1)
    assert report.scores == {"val": score}


def test_updates_do_not_alias_what_the_client_trains_next():
    federation = Federation(make_client_data((20,))).round0()
    client = federation.clients[1]
    first = train_of(client, federation.broadcast(1))
    assert isinstance(first, ClientUpdate)
    copy = first.params.clone()
    train_of(client, federation.broadcast(2))
    assert torch.equal(first.params, copy)
