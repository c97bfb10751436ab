"""What every method shares: FedAvg at weight zero and before there is anything to
compare with, and rounds that have nothing to say."""

from functools import cache

import numpy as np
import pytest
import torch
from by_bytes import CLASSES, DIM, Federation, make_rows
from by_numpy import World
from every_method import SETTINGS
from federations import MODELS, federate, federate_tiny

from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings
from federatedscope_ggeur.methods import (
    FPL,
    METHODS,
    FedAvg,
    FedAvgM,
    FedDyn,
    FedFA,
    FedGen,
    FedMix,
    FedNTD,
    FedOpt,
    FedProto,
    FedProx,
    FedSAM,
    Moon,
    Scaffold,
    build_method,
)

#: FedAvg to the bit, or as far as another order of sums allows.
NEUTRAL = [
    *((method, 0) for method in (FedProx(0.0), Moon(0.0), FedNTD(0.0), FedProto(0.0))),
    *((method, 0) for method in (FPL(strength=0.0), FedGen(0.0), FedFA(0.0))),
    (FedSAM(rho=0.0), 0),
    (FedOpt("SGD", 1.0), 1e-6),
    (FedAvgM(momentum=0.0, lr=1.0), 1e-6),
    (FedMix(0.0), 1e-6),
]


#: One model says most.
EITHER = ["mlp", "linear"]


@cache
def fedavg(model, sizes=(20, 30, 25), **options):
    """FedAvg's weights after each round."""
    return federate(FedAvg(), model=MODELS[model], sizes=sizes, **options).weights


@pytest.mark.parametrize("model", EITHER)
@pytest.mark.parametrize(
    ("method", "tolerance"), NEUTRAL, ids=lambda given: getattr(given, "name", "")
)
def test_a_term_of_weight_zero_is_fedavg(method, tolerance, model):
    options = {"rounds": 2, "sizes": (20, 0, 30, 25)}
    found = federate(method, model=MODELS[model], **options).weights
    assert (found - fedavg(model, **options)).abs().max() <= tolerance


@pytest.mark.parametrize("hidden", [0, 3])
@pytest.mark.parametrize("name", METHODS)
def test_a_round_of_clients_without_data_changes_nothing(name, hidden):
    everyone = (1, 2, 3, 4)
    method = build_method(name, **SETTINGS.get(name, {}))
    world = World((everyone, (3,), everyone), hidden)
    weights = federate_tiny(method, world).weights
    assert torch.equal(weights[2], weights[1])
    without = federate_tiny(method, World((everyone, everyone), hidden)).weights
    assert torch.equal(weights[3], without[2])


# Where the methods end on a convex problem whose clients want different heads.
#
# Weight decay is part of each client's loss, so that the problem has one solution: the
# point where the weighted mean of the clients' gradients vanishes.


DECAY = 0.2
SIZES = {1: 12, 2: 40, 3: 25, 4: 23}


def make_data():
    """Clients of different sizes that hold two of the four classes each."""
    data = {}
    for k, n in SIZES.items():
        features, labels = make_rows(n, seed=k, classes=2)
        data[k] = (f"domain {k}", features, (labels + k) % CLASSES)
    return data


DATA = make_data()


def mean_gradient(w, equal):
    """Of the clients' losses at weights `w` [P], in numpy."""
    weight, bias = np.split(w, [CLASSES * DIM])
    total = DECAY * w
    for _, features, labels in DATA.values():
        x = features.double().numpy()
        share = 1 / len(SIZES) if equal else len(x) / sum(SIZES.values())
        logits = x @ weight.reshape(CLASSES, DIM).T + bias
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        residual = (odds - np.eye(CLASSES)[labels.numpy()]) / len(x)
        gradient = [(residual.T @ x).ravel(), residual.sum(axis=0)]
        total = total + share * np.concatenate(gradient)
    return total


@pytest.fixture(scope="module", params=[False, True], ids=["weighted", "equal"])
def solution(request):
    """Whether clients weigh alike, and the point where their mean gradient is 0."""
    w = np.zeros(CLASSES * DIM + CLASSES)
    for _ in range(600):
        w = w - 0.3 * mean_gradient(w, request.param)
    assert abs(mean_gradient(w, request.param)).max() < 1e-12
    return request.param, w


def distance(method, solution, drawn, steps, lr=0.2, momentum=0.0, lost=()):
    """The largest difference to the solution that a weight has in the end.

    All rows are one batch, so that an epoch is one step. With clients sampled there
    are as many more rounds. The updates of the (round, client) in `lost` do not arrive.
    """
    equal, wanted = solution
    options = {"weight_decay": DECAY, "momentum": momentum}
    federation = Federation(
        DATA,
        method,
        training=TrainingSettings(
            OptimizerSettings("SGD", lr, options), steps, "epoch", 64, shuffle=False
        ),
        ignore_weight=equal,
        sample_client_num=drawn,
    ).round0()
    for number in range(1, 40 * len(DATA) // drawn + 1):
        updates = federation.train(number)
        arrived = [u for u in updates if (number, u.client) not in lost]
        federation.step(number, arrived)
    return abs(federation.server.params.double().numpy() - wanted).max()


@pytest.mark.slow
@pytest.mark.parametrize("drawn", [4, 2])
def test_feddyn_of_solved_local_problems_ends_there(solution, drawn):
    assert distance(FedDyn(0.5), solution, drawn, steps=40) < 2e-5


@pytest.mark.slow
@pytest.mark.parametrize(("lr", "momentum"), [(0.2, 0.0), (0.05, 0.9)])
@pytest.mark.parametrize("drawn", [4, 2])
def test_scaffold_ends_there(solution, drawn, lr, momentum):
    assert distance(Scaffold(1.0), solution, drawn, 10, lr, momentum) < 2e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "steps"), [(FedDyn(0.5), 40), (Scaffold(1.0), 10)], ids=["dyn", "scaf"]
)
def test_lost_updates_do_not_move_where_they_end(solution, method, steps):
    """The first of a client, two of one in a row, one of a client never counted."""
    lost = {(1, 1), (3, 2), (4, 2), (6, 4), (8, 4)}
    assert distance(method, solution, 4, steps, lost=lost) < 2e-5


@pytest.mark.slow
def test_fedavg_does_not(solution):
    assert distance(FedAvg(), solution, drawn=4, steps=40) > 0.1
