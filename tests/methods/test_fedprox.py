"""FedProx: numbers by numpy, and how far clients move."""

import pytest
from by_numpy import means_of_rounds, train_all
from federations import EVERY_WORLD, check

from federatedscope_ggeur.methods import FedProx

MU = 0.7


def oracle(world):
    """Weights after each round: clients minimise CE + mu/2 |w - w_g|^2."""

    def train(w, clients, number):
        def loss(v, x, y):
            return world.cross_entropy(v, x, y) + MU / 2 * ((v - w) ** 2).sum()

        return train_all(world, w, clients, loss)

    return means_of_rounds(world, train)


@pytest.mark.parametrize("world", EVERY_WORLD)
def test_the_weights_are_those_of_numpy(world):
    check(FedProx(MU), oracle, world)
