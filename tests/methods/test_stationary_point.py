"""Where the methods end on a convex problem whose clients want different heads.

Weight decay is part of each client's loss, so that the problem has one solution: the
point where the weighted mean of the clients' gradients vanishes.
"""

import numpy as np
import pytest
from by_bytes import CLASSES, DIM, Federation, make_rows

from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings
from federatedscope_ggeur.methods import FedAvg, FedDyn, Scaffold

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("drawn", [4, 2])
def test_feddyn_of_solved_local_problems_ends_there(solution, drawn):
    assert distance(FedDyn(0.5), solution, drawn, steps=40) < 2e-5


@pytest.mark.parametrize(("lr", "momentum"), [(0.2, 0.0), (0.05, 0.9)])
@pytest.mark.parametrize("drawn", [4, 2])
def test_scaffold_ends_there(solution, drawn, lr, momentum):
    assert distance(Scaffold(1.0), solution, drawn, 10, lr, momentum) < 2e-5


@pytest.mark.parametrize(
    ("method", "steps"), [(FedDyn(0.5), 40), (Scaffold(1.0), 10)], ids=["dyn", "scaf"]
)
def test_lost_updates_do_not_move_where_they_end(solution, method, steps):
    """The first of a client, two of one in a row, one of a client never counted."""
    lost = {(1, 1), (3, 2), (4, 2), (6, 4), (8, 4)}
    assert distance(method, solution, 4, steps, lost=lost) < 2e-5


def test_fedavg_does_not(solution):
    assert distance(FedAvg(), solution, drawn=4, steps=40) > 0.1
