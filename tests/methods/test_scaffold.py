"""SCAFFOLD: numbers by numpy, and steps that cannot be counted."""

import numpy as np
import pytest
from by_numpy import MOMENTUM, RATE, sgd
from federations import EVERY_WORLD, check, federate

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings
from federatedscope_ggeur.methods import Scaffold

SERVER_LR = 0.25


def oracle(world):
    """Weights after each round: the gradient is g - c_k + c, as if the loss had
    <c - c_k, w> added; c_k' = c_k - c + (w_g - w_k) / (eta tau_m)."""
    w, after = world.start, []
    c, own = np.zeros_like(w), {}
    for clients in world.drawn:
        trained, change = {}, {}
        for k in clients:
            before = own.get(k, np.zeros_like(w))

            def loss(v, x, y, slope=c - before):
                return world.cross_entropy(v, x, y) + slope @ v

            trained[k], steps = sgd(loss, w, k)
            if steps == 0:
                continue
            # The steps that heavy-ball momentum makes of one gradient, added up.
            made = sum(1 - MOMENTUM**i for i in range(1, steps + 1)) / (1 - MOMENTUM)
            own[k] = before - c + (w - trained[k]) / (RATE * made)
            change[k] = own[k] - before
        c = c + sum(world.pi(k) * change[k] for k in change)
        w = w + SERVER_LR * (world.mean(w, clients, trained) - w)
        after.append(w)
    return after


@pytest.mark.parametrize("world", EVERY_WORLD)
def test_the_weights_are_those_of_numpy(world):
    check(Scaffold(SERVER_LR), oracle, world)


@pytest.mark.parametrize(
    "optimizer",
    [
        OptimizerSettings("Adam", 0.01),
        OptimizerSettings("SGD", 0.01, {"momentum": 0.9, "nesterov": True}),
        OptimizerSettings("SGD", 0.01, {"momentum": 0.9, "dampening": 0.1}),
    ],
)
def test_steps_that_cannot_be_counted_are_refused(optimizer):
    training = TrainingSettings(optimizer)
    with pytest.raises(ConfigError, match=r"the local optimiser's .* scaffold"):
        federate(Scaffold(), training=training)
