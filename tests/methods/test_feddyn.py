"""FedDyn: numbers by numpy."""

import numpy as np
import pytest
from by_numpy import sgd
from federations import EVERY_WORLD, check

from federatedscope_ggeur.methods import FedDyn

ALPHA = 0.5


def oracle(world):
    """Weights after each round: clients minimise CE - <h_k, w> + a/2 |w - w_g|^2."""
    w, after = world.start, []
    h, own = np.zeros_like(w), {}
    for clients in world.drawn:
        trained = {}
        for k in clients:
            before = own.get(k, np.zeros_like(w))

            def loss(v, x, y, start=w, h_k=before):
                near = ALPHA / 2 * ((v - start) ** 2).sum()
                return world.cross_entropy(v, x, y) - h_k @ v + near

            trained[k], _ = sgd(loss, w, k)
            own[k] = before - ALPHA * (trained[k] - w)
        h = h - ALPHA * sum(world.pi(k) * (trained[k] - w) for k in clients)
        w = world.mean(w, clients, trained) - h / ALPHA
        after.append(w)
    return after


@pytest.mark.parametrize("world", EVERY_WORLD)
def test_the_weights_are_those_of_numpy(world):
    check(FedDyn(ALPHA), oracle, world, atol=1e-6)
