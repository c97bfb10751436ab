"""FedAvg is the mean weighted by n_k; `weighted_mean` in its corners."""

import pytest
import torch
from by_bytes import Federation, make_client_data

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
