"""What every method shares: FedAvg at weight zero and before there is anything to
compare with, and rounds that have nothing to say."""

from functools import cache

import pytest
import torch
from by_numpy import World
from every_method import SETTINGS
from federations import MODELS, federate, federate_tiny

from federatedscope_ggeur.methods import (
    FPL,
    METHODS,
    FedAvg,
    FedAvgM,
    FedFA,
    FedGen,
    FedMix,
    FedNTD,
    FedOpt,
    FedProto,
    FedProx,
    FedSAM,
    Moon,
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
