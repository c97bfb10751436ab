"""All data in one place: plain SGD on everybody's rows, by numpy."""

import numpy as np
import pytest
import torch
from by_bytes import Federation
from by_numpy import SIZES, World, rows, sgd_by_batch
from federations import TINY

from federatedscope_ggeur.data import ClientData, Embeddings, FederatedData, centralise
from federatedscope_ggeur.methods import Centralised
from federatedscope_ggeur.models import ModelSettings

ROUNDS = 2


def divided():
    """The tiny world's rows, a domain for each client."""
    clients = []
    for k in SIZES:
        x, y = rows(k)
        train = Embeddings(torch.tensor(x).float(), torch.tensor(y), f"domain {k}")
        clients.append(ClientData(k, train.domain, train, train.select([])))
    names = tuple(client.domain for client in clients)
    return FederatedData(tuple(clients), names, (), tuple("0123"), "numbers")


def plain_sgd(world):
    """Weights after each round of SGD on all rows, class by class as `fit` takes them,
    in a class in order of the clients."""
    x, y = (np.concatenate(part) for part in zip(*map(rows, SIZES)))
    by_class = np.argsort(y, kind="stable")

    def loss_of(x, y):
        return lambda v: world.cross_entropy(v, x, y)

    w, after = world.start, []
    for _ in range(ROUNDS):
        w, _ = sgd_by_batch(loss_of, w, None, (x[by_class], y[by_class]))
        after.append(w)
    return np.stack(after)


@pytest.mark.parametrize("hidden", [0, 3])
def test_the_weights_are_those_of_plain_sgd(hidden):
    world = World(hidden=hidden)
    (pooled,) = centralise(divided()).clients
    train = pooled.train.features, pooled.train.labels
    federation = Federation(
        {pooled.number: (pooled.domain, *train)},
        Centralised(),
        training=TINY,
        model=ModelSettings(hidden),
    )
    federation.server.params = torch.tensor(world.start).float()
    found = federation.run(ROUNDS)[1:].double().numpy()
    np.testing.assert_allclose(found, plain_sgd(world), rtol=1e-6, atol=1e-6)
