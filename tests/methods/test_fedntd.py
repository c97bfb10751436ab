"""FedNTD: numbers by numpy, and what two classes leave of it."""

import numpy as np
import pytest
import torch
from by_bytes import Federation, make_client_data
from by_numpy import log_softmax, means_of_rounds, train_all
from federations import FEW_WORLDS, check, federate

from federatedscope_ggeur.methods import FedAvg, FedNTD

BETA, TEMPERATURE = 0.8, 2.0


def without_true_class(logits, y):
    others = np.arange(logits.shape[1]) != y[:, None]
    return logits[others].reshape(len(y), -1)


def oracle(world):
    """Weights after each round: CE + beta t^2 KL(q_g || q), batch mean, with q the
    softmax of the logits over t without the true class."""

    def train(w, clients, number):
        def loss(v, x, y):
            log_q_g, log_q = (
                log_softmax(without_true_class(world.logits(u, x), y) / TEMPERATURE)
                for u in (w, v)
            )
            divergence = (np.exp(log_q_g) * (log_q_g - log_q)).sum(axis=1).mean()
            return world.cross_entropy(v, x, y) + BETA * TEMPERATURE**2 * divergence

        return train_all(world, w, clients, loss)

    return means_of_rounds(world, train)


@pytest.mark.parametrize("world", FEW_WORLDS)
def test_the_weights_are_those_of_numpy(world):
    check(FedNTD(BETA, TEMPERATURE), oracle, world)


def test_it_has_no_say_with_two_classes():
    plain = federate(FedAvg(), classes=4).weights
    assert (federate(FedNTD()).weights - plain).abs().max() > 1e-4
    data = {
        k: (domain, features, labels % 2)
        for k, (domain, features, labels) in make_client_data().items()
    }
    both = [
        Federation(data, method, classes=2).run(2) for method in (FedAvg(), FedNTD())
    ]
    torch.testing.assert_close(both[0], both[1], rtol=0, atol=1e-6)


def test_logits_far_apart_do_no_harm():
    federation = federate(FedNTD(), rounds=1)
    federation.server.params = federation.server.params * 1e4
    federation.step(2, federation.train(2))
    assert torch.isfinite(federation.server.params).all()
