"""FedFA: numbers by numpy, what travels, and the floor."""

import by_numpy
import numpy as np
import pytest
import torch
from by_bytes import CLASSES, DIM, Federation, make_client_data
from by_numpy import sgd_by_batch
from federations import HEADS, LOCAL, WORLDS, check, federate, federate_tiny

from federatedscope_ggeur.federation import TrainingSettings
from federatedscope_ggeur.methods import FedAvg, FedFA
from federatedscope_ggeur.rng import torch_generator

PROBABILITY = 0.6


def draws(k, number):
    """Which batches of a round are shaken, and by what noise."""
    generator = torch_generator(0, k, "fedfa", number)

    def draw(shape):
        if torch.rand((), generator=generator) >= PROBABILITY:
            return np.zeros(shape)
        return torch.randn(shape, generator=generator).double().numpy()

    return draw


def gamma_of(means):
    """gamma_j = D q_j / sum q, q = s / (1 + s), s the variance over clients."""
    s = np.var(means, axis=0)
    q = s / (1 + s)
    return len(q) * q / q.sum() if q.any() else np.ones_like(q)


def oracle(world):
    """Weights after each round; r = .99 r + .01 mean_B(x), sent as r / (1 - .99^t)."""
    w, after, gamma = world.start, [], np.ones(by_numpy.DIM)
    r = {k: np.zeros(by_numpy.DIM) for k in by_numpy.SIZES}
    t = dict.fromkeys(by_numpy.SIZES, 0)
    for number, clients in enumerate(world.drawn, start=1):
        trained = {}
        for k in clients:
            draw = draws(k, number)

            def shaken(x, y, k=k, draw=draw, gamma=gamma):
                r[k] = 0.99 * r[k] + 0.01 * x.mean(axis=0)
                t[k] += 1
                noisy = x + draw(x.shape) * np.sqrt((gamma + 1) * x.var(axis=0))
                return lambda v: world.cross_entropy(v, noisy, y)

            trained[k], _ = sgd_by_batch(shaken, w, k)
        sent = [r[k] / (1 - 0.99 ** t[k]) for k in clients if t[k]]
        gamma = gamma_of(sent) if sent else gamma
        w = world.mean(w, clients, trained)
        after.append(w)
    return after


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_the_weights_are_those_of_numpy(world):
    check(FedFA(PROBABILITY), oracle, world)


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_probability_zero_is_fedavg_to_the_bit(head):
    plain = federate(FedAvg(), head=head).weights
    assert torch.equal(federate(FedFA(0.0), head=head).weights, plain)


def test_gamma_is_one_of_equal_clients_and_of_one_alone():
    _, features, labels = make_client_data((24,))[1]
    twins = {k: (f"domain {k}", features, labels) for k in (1, 2)}
    training = TrainingSettings(LOCAL.optimizer, 1, "epoch", 24, shuffle=False)
    for data in (twins, {1: twins[1]}):
        federation = Federation(data, FedFA(), training=training)
        federation.run(2)
        assert torch.equal(federation.server.method_state["gamma"], torch.ones(DIM))


def test_gamma_is_larger_where_clients_differ_more():
    data = make_client_data((30, 30, 30))
    for k, (_, features, _) in data.items():
        features[:, 4] += 2 * k
    federation = Federation(data, FedFA())
    federation.run(1)
    gamma = federation.send(federation.server.broadcast(2)).download["gamma"]
    assert gamma.sum().item() == pytest.approx(DIM, rel=1e-5)
    assert gamma.argmax() == 4
    assert gamma[4] > 2 * gamma[:4].max()


def test_a_client_without_rows_does_not_count():
    """Its zeros would be one more mean that differs."""
    gammas = [
        federate(FedFA(), sizes=sizes).server.method_state["gamma"]
        for sizes in ((20, 30, 25), (20, 30, 25, 0))
    ]
    assert torch.equal(*gammas)


def test_a_round_of_one_client_is_gamma_one_and_of_none_keeps_gamma():
    everyone = (1, 2, 3, 4)
    for drawn, same in (((3,), True), ((4,), False)):
        before, after = (
            federate_tiny(FedFA(), by_numpy.World(rounds)).server.method_state["gamma"]
            for rounds in ((everyone,), (everyone, drawn))
        )
        assert torch.equal(after, before) is same
        assert torch.equal(after, torch.ones(by_numpy.DIM)) is not same


class TestTheFloor:
    def sent(self, sizes, training=LOCAL, rounds=1):
        federation = Federation(
            make_client_data(sizes), FedFA(), training=training, min_samples=5
        ).round0()
        for number in range(1, rounds + 1):
            updates = federation.train(number)
            federation.server.step(number, updates)
        return {u.client: u.upload for u in updates}, federation

    def test_a_client_of_few_rows_sends_nothing(self):
        uploads, _ = self.sent((20, 4, 5))
        assert uploads[1]["batches"].item() == 6
        assert uploads[3]["batches"].item() == 2
        assert uploads[2]["batches"].item() == 0
        assert not uploads[2]["mean"].any()

    def test_a_round_of_few_rows_sends_nothing_but_counts_later(self):
        training = TrainingSettings(LOCAL.optimizer, 2, "batch", 2)
        uploads, federation = self.sent((20, 30), training, rounds=2)
        assert uploads[1]["batches"].item() == 0
        assert not uploads[1]["mean"].any()
        assert federation.clients[1].state["batches"].item() == 4
        assert torch.equal(federation.server.method_state["gamma"], torch.ones(DIM))

    def test_what_is_sent_is_the_mean_of_all_batches_so_far(self):
        training = TrainingSettings(LOCAL.optimizer, 1, "epoch", 20, shuffle=False)
        uploads, federation = self.sent((20, 30), training, rounds=3)
        own = federation.clients[1].features.mean(dim=0)
        torch.testing.assert_close(uploads[1]["mean"], own, rtol=1e-4, atol=1e-5)
        assert uploads[1]["batches"].item() == 3


def test_huge_means_leave_gamma_finite():
    federation = Federation(make_client_data(), FedFA()).round0()
    updates = federation.train(1)
    updates[0].upload["mean"][:] = torch.finfo(torch.float32).max
    federation.server.step(1, updates)
    gamma = federation.server.method_state["gamma"]
    torch.testing.assert_close(gamma, torch.ones(DIM))
    assert federation.send(federation.server.broadcast(2)).params.shape == (
        CLASSES * (DIM + 1),
    )
