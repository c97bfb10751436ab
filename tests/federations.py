"""Federations that tests of methods run: tiny ones beside numpy, and larger ones."""

import by_numpy
import numpy as np
import pytest
import torch
from by_bytes import Federation, make_client_data
from by_numpy import World

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import (
    PREPARE,
    AugmentationClient,
)
from federatedscope_ggeur.models import ModelSettings, to_vector

MOMENTUM = OptimizerSettings("SGD", 0.05, {"momentum": 0.9, "weight_decay": 1e-3})
OPTIMIZERS = {
    "sgd": OptimizerSettings("SGD", 0.1),
    "momentum": MOMENTUM,
    "nesterov": OptimizerSettings("SGD", 0.05, {"momentum": 0.9, "nesterov": True}),
    "adam": OptimizerSettings("Adam", 0.01),
    "amsgrad": OptimizerSettings("Adam", 0.01, {"amsgrad": True}),
}
LOCAL = TrainingSettings(MOMENTUM, 2, "epoch", 8)
MODELS = {"linear": ModelSettings(), "mlp": ModelSettings(hidden=6, dropout=0.2)}


#: Without dropout, which draws.
PLAIN_MODELS = {"linear": ModelSettings(), "mlp": ModelSettings(hidden=5)}


def train_plainly(model, start, batches, optimizer, loss_of, clip=0.0):
    """The loop that everybody writes, over batches of rows and labels."""
    model = model.at(start).train().requires_grad_(True)
    make = getattr(torch.optim, optimizer.type)
    torch_optimizer = make(model.parameters(), lr=optimizer.lr, **optimizer.options)
    for x, y in batches:
        torch_optimizer.zero_grad()
        loss_of(model, x, y).backward()
        if clip > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        torch_optimizer.step()
    return to_vector(model)


def federate(method, rounds=3, sizes=(20, 30, 25), **options):
    """A federation after `rounds` rounds, with the `weights` of each."""
    options.setdefault("training", LOCAL)
    federation = Federation(make_client_data(sizes), method, **options)
    federation.weights = federation.run(rounds)
    return federation


def refuse_first_upload(method, name, place, value, problem):
    """What a client sends once, with another value at a place, is refused."""
    federation = Federation(make_client_data(), method)
    reply = federation.side(1, AugmentationClient).prepare(None, None)
    reply.init_upload[name][place] = value
    with pytest.raises(MessageError, match=f"client 1 .*'init_upload': .*{problem}"):
        federation.augmentation.add_reply(federation.validated(PREPARE, reply))
    assert 1 not in federation.server.aggregation_weights


def refuse_upload(federation, change, problem):
    """What client 2 sends in round 1, with other values for class 3, is refused."""
    updates = federation.train(1)
    for name, value in change.items():
        updates[1].upload[name][3] = value
    with pytest.raises(MessageError, match=f"client 2 .*'upload': {problem}"):
        federation.step(1, updates)


TINY = TrainingSettings(
    OptimizerSettings(
        "SGD",
        by_numpy.RATE,
        {"momentum": by_numpy.MOMENTUM, "weight_decay": by_numpy.DECAY},
    ),
    by_numpy.EPOCHS,
    "epoch",
    by_numpy.BATCH,
    shuffle=False,
)
#: Some of the clients each round; each is left out for a while.
SAMPLED = ((1, 4), (2, 3), (1, 2), (4,), (2, 4))
WORLDS = {
    f"{model}, {name}": World(hidden=hidden, **options)
    for model, hidden in (("linear", 0), ("mlp", 3))
    for name, options in {
        "weighted": {},
        "equal": {"equal": True},
        "sampled": {"drawn": SAMPLED},
    }.items()
}


EVERY_WORLD = [pytest.param(world, id=name) for name, world in WORLDS.items()]
#: Those in which a method whose oracle takes long shows each of these.
FEW_WORLDS = [one for one in EVERY_WORLD if one.id in ("linear, equal", "mlp, sampled")]


def federate_tiny(method, world, **options):
    """The federation of a `World` after all rounds, with the `weights` of each."""
    data = {}
    for k in by_numpy.SIZES:
        x, y = by_numpy.rows(k)
        data[k] = (f"domain {k}", torch.tensor(x).float(), torch.tensor(y))
    options.setdefault("training", TINY)
    model = ModelSettings(world.hidden)
    federation = Federation(
        data, method, model=model, ignore_weight=world.equal, **options
    ).round0()
    server = federation.server
    server.params = torch.tensor(world.start).float()
    weights = [server.params]
    for number, clients in enumerate(world.drawn, start=1):
        federation.training.sample = lambda _, drawn=clients: list(drawn)
        federation.training.step(number, federation.train(number))
        weights.append(server.params)
    federation.weights = torch.stack(weights)
    return federation


def check(method, oracle, world, atol=5e-7):
    """The weights after every round are those that `oracle` gives from numpy."""
    found = federate_tiny(method, world).weights[1:].double().numpy()
    wanted = np.stack(oracle(world))
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=atol)
