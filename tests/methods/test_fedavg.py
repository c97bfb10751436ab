"""FedAvg is the mean weighted by n_k; `weighted_mean` in its corners."""

import numpy as np
import pytest
import torch
from by_bytes import Federation, make_client_data
from by_numpy import server_changes
from federations import WORLDS, check

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.methods import (
    FedAvg,
    FedAvgM,
    FedOpt,
    Update,
    build_method,
    weighted_mean,
)
from federatedscope_ggeur.methods.adam import Adam


def make_update(client, weight, values):
    return Update(client, weight, torch.tensor(values), steps=1)


def test_mean_is_weighted():
    updates = [make_update(1, 1.0, [0.0, 4.0]), make_update(2, 3.0, [8.0, 0.0])]
    mean = weighted_mean(torch.zeros(2), updates)
    assert mean.tolist() == [6.0, 1.0]
    assert mean.dtype == torch.float32


def test_a_client_of_weight_zero_has_no_say():
    updates = [make_update(1, 0.0, [100.0]), make_update(2, 5.0, [2.0])]
    assert weighted_mean(torch.zeros(1), updates).item() == 2.0


@pytest.mark.parametrize("updates", [[], [make_update(1, 0.0, [100.0])]])
def test_without_any_weight_the_old_weights_stay(updates):
    assert weighted_mean(torch.tensor([7.0]), updates).item() == 7.0


def test_one_client_is_followed_to_the_bit():
    params = torch.randn(50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(weighted_mean(params * 0, [Update(1, 3.0, params, 1)]), params)


def test_many_clients_lose_nothing_to_rounding():
    values = torch.full((1,), 0.1)
    updates = [Update(k, 1.0, values, 1) for k in range(1, 1001)]
    assert torch.equal(weighted_mean(values * 0, updates), values)


def test_a_round_is_the_mean_of_what_the_clients_trained():
    federation = Federation(make_client_data((20, 30, 0, 25))).round0()
    updates = federation.train(1)
    federation.step(1, updates)
    by_client = {update.client: update.params.double() for update in updates}
    wanted = (20 * by_client[1] + 30 * by_client[2] + 25 * by_client[4]) / 75
    torch.testing.assert_close(federation.server.params, wanted.float())


def test_methods_are_built_by_name():
    assert isinstance(build_method("fedavg"), FedAvg)
    with pytest.raises(ConfigError, match=r"base_method: .*'fedavgg'.*fedavg"):
        build_method("fedavgg")


# FedAvgM: numbers by numpy, and FedAvg at neutral settings.


LR, MOMENTUM = 0.5, 0.9


def fedavgm(d, state):
    """v = b v + (w_g - sum p_k w_k); w_g -= lr v."""
    state["v"] = MOMENTUM * state.get("v", 0) - d
    return -LR * state["v"]


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_the_weights_are_those_of_numpy(world):
    check(FedAvgM(MOMENTUM, LR), server_changes(fedavgm), world)


# FedOpt: numbers by numpy, and FedAvg at neutral settings.


SERVER_LR, SERVER_MOMENTUM, B1, B2, EPS = 0.5, 0.9, 0.8, 0.95, 1e-3


def sgd(d, state):
    state["v"] = SERVER_MOMENTUM * state.get("v", 0) + d
    return SERVER_LR * state["v"]


def adaptive(v_of):
    """u = b1 u + (1 - b1) d, v_0 = eps^2, and lr u / (sqrt v + eps): Algorithm 2."""

    def change(d, state):
        state["u"] = B1 * state.get("u", 0) + (1 - B1) * d
        state["v"] = v_of(state.get("v", np.full_like(d, EPS**2)), d**2)
        return SERVER_LR * state["u"] / (np.sqrt(state["v"]) + EPS)

    return change


#: FedOpt's change of w_g from d = sum p_k w_k - w_g, by type.
CHANGES = {
    "SGD": sgd,
    "Adam": adaptive(lambda v, d2: B2 * v + (1 - B2) * d2),
    "Yogi": adaptive(lambda v, d2: v - (1 - B2) * d2 * np.sign(v - d2)),
    "Adagrad": adaptive(lambda v, d2: v + d2),
}


#: A server's step knows no model: one type is enough for all worlds.
CASES = [
    *((kind, "linear, weighted") for kind in CHANGES),
    *(("Yogi", name) for name in WORLDS),
]


@pytest.mark.parametrize(("kind", "world"), dict.fromkeys(CASES))
def test_the_weights_are_those_of_numpy_fedopt(world, kind):
    method = FedOpt(kind, SERVER_LR, SERVER_MOMENTUM, (B1, B2), EPS)
    check(method, server_changes(CHANGES[kind]), WORLDS[world], atol=2e-5)


# Adam of one vector beside torch's own.


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.999)])
def test_steps_are_those_of_torch(betas):
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(20, generator=generator, dtype=torch.float64)
    vector, theirs = start.clone(), start.clone().requires_grad_(True)
    adam = Adam(vector, 0.1, betas)
    torchs = torch.optim.Adam([theirs], lr=0.1, betas=betas)
    schedule = torch.optim.lr_scheduler.StepLR(torchs, 3, 0.5)
    for step in range(10):
        gradient = torch.randn(20, generator=generator, dtype=torch.float64)
        theirs.grad = gradient.clone()
        adam.lr = 0.1 * 0.5 ** (step // 3)
        adam.step(gradient)
        torchs.step()
        schedule.step()
        torch.testing.assert_close(vector, theirs.detach(), rtol=1e-10, atol=1e-12)
