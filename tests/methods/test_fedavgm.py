"""FedAvgM: numbers by numpy, and FedAvg at neutral settings."""

import pytest
import torch
from by_numpy import server_changes
from federations import MODELS, WORLDS, check, federate

from federatedscope_ggeur.methods import FedAvg, FedAvgM

LR, MOMENTUM = 0.5, 0.9


def fedavgm(d, state):
    """v = b v + (w_g - sum p_k w_k); w_g -= lr v."""
    state["v"] = MOMENTUM * state.get("v", 0) - d
    return -LR * state["v"]


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_the_weights_are_those_of_numpy(world):
    check(FedAvgM(MOMENTUM, LR), server_changes(fedavgm), world)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_rate_1_without_momentum_is_fedavg(model):
    plain = federate(FedAvg(), model=model).weights
    weights = federate(FedAvgM(momentum=0.0, lr=1.0), model=model).weights
    torch.testing.assert_close(weights, plain, rtol=0, atol=1e-6)
