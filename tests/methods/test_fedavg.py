"""FedAvg is the mean weighted by n_k; `weighted_mean` in its corners."""

import pytest
import torch
from by_bytes import Federation, make_client_data

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.methods import FedAvg, Update, build_method, weighted_mean


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
