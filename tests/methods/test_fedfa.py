"""FedFA: numbers by numpy, what travels, and the threshold."""

import by_numpy
import numpy as np
import pytest
import torch
from by_bytes import Federation, few_of_a_class, make_client_data
from by_numpy import means_of_rounds, sgd_by_batch
from federations import FEW_WORLDS, check, federate, federate_tiny, refuse_first_upload

from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings
from federatedscope_ggeur.methods import FedFA
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
    """Weights after each round; gamma of the plain means of the round's clients."""
    gamma = np.ones(by_numpy.DIM)

    def train(w, clients, number):
        nonlocal gamma
        trained = {}
        for k in clients:
            draw = draws(k, number)

            def shaken(x, y, draw=draw, gamma=gamma):
                noisy = x + draw(x.shape) * np.sqrt((gamma + 1) * x.var(axis=0))
                return lambda v: world.cross_entropy(v, noisy, y)

            trained[k], _ = sgd_by_batch(shaken, w, k)
        held = [by_numpy.rows(k)[0] for k in clients if by_numpy.SIZES[k]]
        gamma = gamma_of([x.mean(axis=0) for x in held]) if held else gamma
        return trained

    return means_of_rounds(world, train)


@pytest.mark.parametrize("world", FEW_WORLDS)
def test_the_weights_are_those_of_numpy(world):
    check(FedFA(PROBABILITY), oracle, world)


@pytest.mark.parametrize("few", [0, 4])
def test_a_client_without_rows_above_the_threshold_does_not_count(few):
    """Its zeros would be one more mean that differs."""
    gammas = [
        federate(FedFA(), sizes=sizes, min_samples=5).server.method_state["gamma"]
        for sizes in ((40, 30, 35), (40, 30, 35, few))
    ]
    assert torch.equal(*gammas)


def test_a_client_that_never_trains_does_not_count():
    optimizer = OptimizerSettings("SGD", 0.1)
    training = TrainingSettings(optimizer, batch_size=8, drop_last=True)
    gammas = [
        federate(FedFA(), sizes=sizes, training=training).server.method_state["gamma"]
        for sizes in ((20, 30, 25), (20, 30, 25, 7))
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


class TestWhatTravels:
    def uploads(self, data, **options):
        federation = Federation(data, FedFA(), **options).round0()
        return federation.server.init_uploads, federation

    def test_the_mean_of_all_rows_once_and_nothing_else(self):
        """A mean that moved with the batches would give away what came between."""
        sent, federation = self.uploads(make_client_data())
        for k, client in federation.clients.items():
            assert set(sent[k]) == {"mean", "known"}
            mean = client.features.double().mean(dim=0).float()
            torch.testing.assert_close(sent[k]["mean"], mean)
        for number in (1, 2):
            updates = federation.train(number)
            assert [update.upload for update in updates] == [{}] * 3
            federation.step(number, updates)
        assert not any(client.state for client in federation.clients.values())

    def test_it_is_of_own_rows_and_other_clients_do_not_get_it(self):
        sent, federation = self.uploads(make_client_data(), steps=(1, 2))
        own = federation.clients[2].features.mean(dim=0)
        torch.testing.assert_close(sent[2]["mean"], own)
        assert federation.augmentation.start() is None
        assert set(federation.broadcast(1).download) == {"gamma"}

    def test_rows_of_a_class_below_the_threshold_are_not_in_it(self):
        data = make_client_data((30, 30))
        _, features, _ = few_of_a_class(data[1], 4)
        features[:4] = 1e6
        sent, _ = self.uploads(data, min_samples=5)
        torch.testing.assert_close(sent[1]["mean"], features[4:].mean(dim=0))
        assert sent[1]["known"].tolist() == [1]

    def test_a_client_without_such_rows_says_so_and_no_more(self):
        sent, _ = self.uploads(make_client_data((40, 4, 0)), min_samples=5)
        for k, flag in enumerate((1, 0, 0), start=1):
            assert sent[k]["known"].tolist() == [flag]
            assert bool(sent[k]["mean"].any()) is bool(flag)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("mean", 2e15, r"'mean' must lie within \+-1e\+15"),
        ("known", 7, "'known' must be 0 or 1"),
        ("known", -1, "'known' must be 0 or 1"),
    ],
)
def test_an_upload_that_cannot_be_is_refused(name, value, problem):
    refuse_first_upload(FedFA(), name, 0, value, problem)
