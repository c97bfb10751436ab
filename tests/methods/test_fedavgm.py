"""FedAvgM: numbers by numpy, and FedAvg at neutral settings."""

import pytest
from by_numpy import server_changes
from federations import EVERY_WORLD, check

from federatedscope_ggeur.methods import FedAvgM

LR, MOMENTUM = 0.5, 0.9


def fedavgm(d, state):
    """v = b v + (w_g - sum p_k w_k); w_g -= lr v."""
    state["v"] = MOMENTUM * state.get("v", 0) - d
    return -LR * state["v"]


@pytest.mark.parametrize("world", EVERY_WORLD)
def test_the_weights_are_those_of_numpy(world):
    check(FedAvgM(MOMENTUM, LR), server_changes(fedavgm), world)
