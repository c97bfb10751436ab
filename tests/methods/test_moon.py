"""MOON: numbers by numpy, and whose last weights a client compares with."""

import numpy as np
import pytest
import torch
from by_numpy import World, train_all
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
    w, after, previous = world.start, [], {}
    for clients in world.drawn:

        def loss(v, x, y, w_g, w_prev):
            value = world.cross_entropy(v, x, y)
            if w_prev is None:
                return value
            z = world.represent(v, x)
            near, far = (
                np.exp(cosine(z, world.represent(other, x)) / TEMPERATURE)
                for other in (w_g, w_prev)
            )
            return value - MU * np.log(near / (near + far)).mean()

        trained = {}
        for k in clients:
            own = {"w_g": w, "w_prev": previous.get(k)}
            trained |= train_all(
                world, w, [k], lambda v, x, y, own=own: loss(v, x, y, **own)
            )
        previous |= trained
        w = world.mean(w, clients, trained)
        after.append(w)
    return after


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
