"""FedOpt: numbers by numpy, and FedAvg at neutral settings."""

import numpy as np
import pytest
import torch
from by_numpy import server_changes
from federations import WORLDS, check

from federatedscope_ggeur.methods import FedOpt
from federatedscope_ggeur.methods.adam import Adam

LR, MOMENTUM, B1, B2, EPS = 0.5, 0.9, 0.8, 0.95, 1e-3


def sgd(d, state):
    state["v"] = MOMENTUM * state.get("v", 0) + d
    return LR * state["v"]


def adaptive(v_of):
    """u = b1 u + (1 - b1) d, v_0 = eps^2, and lr u / (sqrt v + eps): Algorithm 2."""

    def change(d, state):
        state["u"] = B1 * state.get("u", 0) + (1 - B1) * d
        state["v"] = v_of(state.get("v", np.full_like(d, EPS**2)), d**2)
        return LR * state["u"] / (np.sqrt(state["v"]) + EPS)

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
def test_the_weights_are_those_of_numpy(world, kind):
    method = FedOpt(kind, LR, MOMENTUM, (B1, B2), EPS)
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


def test_what_a_server_s_optimizer_does_not_take_is_named():
    assert FedOpt.setting_problems({"type": "SGD", "lr": 1.0, "momentum": 0.9}) == []
    ((name, problem),) = FedOpt.setting_problems({"type": "SGD", "betas": (0.9, 0.99)})
    assert (name, "it takes type, lr, momentum" in problem) == ("betas", True)
