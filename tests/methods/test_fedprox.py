"""FedProx: numbers by numpy, and how far clients move."""

import pytest
from by_numpy import train_all
from federations import EVERY_WORLD, check

from federatedscope_ggeur.methods import FedProx

MU = 0.7


def oracle(world):
    """Weights after each round: clients minimise CE + mu/2 |w - w_g|^2."""
    w, after = world.start, []
    for clients in world.drawn:

        def loss(v, x, y, start=w):
            return world.cross_entropy(v, x, y) + MU / 2 * ((v - start) ** 2).sum()

        w = world.mean(w, clients, train_all(world, w, clients, loss))
        after.append(w)
    return after


@pytest.mark.parametrize("world", EVERY_WORLD)
def test_the_weights_are_those_of_numpy(world):
    check(FedProx(MU), oracle, world)
