"""What every method shares: FedAvg at weight zero, and rounds that have nothing to
say."""

import pytest
import torch
from by_numpy import World
from every_method import SETTINGS
from federations import MODELS, federate, federate_tiny

from federatedscope_ggeur.methods import (
    METHODS,
    FedAvg,
    FedNTD,
    FedProto,
    FedProx,
    Moon,
    build_method,
)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize(
    "method",
    [FedProx(0.0), Moon(0.0), FedNTD(0.0), FedProto(0.0)],
    ids=lambda method: method.name,
)
def test_a_term_of_weight_zero_is_fedavg_to_the_bit(method, model):
    options = {"model": model, "steps": (1, 2), "sizes": (20, 0, 30, 25)}
    plain = federate(FedAvg(), **options).weights
    assert torch.equal(federate(method, **options).weights, plain)


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
