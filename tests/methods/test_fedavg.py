"""FedAvg by its name; `weighted_mean` in its corners."""

import pytest
import torch

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.methods import FedAvg, Update, build_method, weighted_mean


@pytest.mark.parametrize(
    ("updates", "wanted"),
    [
        ([(1.0, [0.0, 4.0]), (3.0, [8.0, 0.0])], [6.0, 1.0]),
        ([(0.0, [100.0]), (5.0, [2.0])], [2.0]),
        # Without any weight the old weights stay.
        ([], [7.0]),
        ([(0.0, [100.0])], [7.0]),
        # One client is followed to the bit, and many lose nothing to rounding.
        ([(3.0, [0.1, -1e-7, 3e5])], [0.1, -1e-7, 3e5]),
        ([(1.0, [0.1])] * 1000, [0.1]),
    ],
    ids=lambda given: f"{len(given)}",
)
def test_the_mean_is_weighted(updates, wanted):
    made = [
        Update(k, weight, torch.tensor(values), steps=1)
        for k, (weight, values) in enumerate(updates, start=1)
    ]
    found = weighted_mean(torch.full((len(wanted),), 7.0), made)
    assert torch.equal(found, torch.tensor(wanted))


def test_methods_are_built_by_name():
    assert isinstance(build_method("fedavg"), FedAvg)
    with pytest.raises(ConfigError, match=r"base_method: .*'fedavgg'.*fedavg"):
        build_method("fedavgg")
