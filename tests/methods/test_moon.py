"""MOON: numbers by numpy, and whose last weights a client compares with."""

import numpy as np
import pytest
import torch
from by_numpy import World, means_of_rounds, sgd
from federations import FEW_WORLDS, check, federate_tiny

from federatedscope_ggeur.methods import Moon

MU, TEMPERATURE = 1.5, 0.5


def cosine(a, b):
    """0 where one of the two is the origin: the hidden units of a row can all be 0."""
    lengths = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    return (a * b).sum(axis=1) / np.where(lengths > 0, lengths, 1)


def oracle(world):
    """Weights after each round: CE + mu * mean of
    -log( e^{sim(z, z_g)/t} / (e^{sim(z, z_g)/t} + e^{sim(z, z_prev)/t}) )."""
    previous = {}

    def train(w, clients, number):
        def loss_of(k):
            def loss(v, x, y):
                z = world.represent(v, x)
                near, far = (
                    np.exp(cosine(z, world.represent(other, x)) / TEMPERATURE)
                    for other in (w, previous[k])
                )
                term = MU * np.log(near / (near + far)).mean()
                return world.cross_entropy(v, x, y) - term

            return loss if k in previous else world.cross_entropy

        trained = {k: sgd(loss_of(k), w, k)[0] for k in clients}
        previous.update(trained)
        return trained

    return means_of_rounds(world, train)


@pytest.mark.parametrize("world", FEW_WORLDS)
def test_the_weights_are_those_of_numpy(world):
    check(Moon(MU, TEMPERATURE), oracle, world)


def test_rows_whose_hidden_units_are_all_dead_do_no_harm():
    world = World(hidden=3)
    dead = torch.tensor(world.start).float()
    dead[18:21] = -100.0  # the hidden bias
    for mu in (0.0, 1.0):
        federation = federate_tiny(Moon(mu), world)
        federation.server.params = dead
        for number in (3, 4):
            federation.step(number, federation.train(number))
        assert torch.isfinite(federation.server.params).all()
