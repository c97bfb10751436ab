"""MixStyle: the mixture by loops, and what it leaves alone."""

import numpy as np
import pytest
import torch
from image_federations import federate_images

from federatedscope_ggeur.extras.networks.methods.feature_statistics import (
    EPS,
    decompose,
)
from federatedscope_ggeur.extras.networks.methods.mixstyle import MixStyle, mixed
from federatedscope_ggeur.methods import Combined, FedAvg


def draw(*shape, seed=0):
    return torch.tensor(np.random.default_rng(seed).normal(size=shape))


class TestMixed:
    other = torch.tensor([2, 0, 1])
    share = torch.tensor([[0.9], [0.25], [1.0]], dtype=torch.float64)

    def test_it_is_that_of_loops(self):
        x = draw(3, 2, 3, 3).numpy()
        found = mixed(torch.tensor(x), self.other, self.share).numpy()
        mean = x.mean(axis=(2, 3))
        std = np.sqrt(x.var(axis=(2, 3)) + EPS)
        for b, (j, share) in enumerate(zip(self.other, self.share[:, 0])):
            for c in range(2):
                mixed_mean = share * mean[b, c] + (1 - share) * mean[j, c]
                mixed_std = share * std[b, c] + (1 - share) * std[j, c]
                normal = (x[b, c] - mean[b, c]) / std[b, c]
                wanted = mixed_std.item() * normal + mixed_mean.item()
                np.testing.assert_allclose(found[b, c], wanted, rtol=1e-10, atol=1e-12)

    def test_statistics_count_as_constants(self):
        maps = draw(3, 2, 3, 3).requires_grad_(True)
        weights = draw(3, 2, 3, 3, seed=1)
        new = mixed(maps, self.other, self.share)
        (gradient,) = torch.autograd.grad((new * weights).sum(), maps)
        _, _, std = decompose(maps.detach())
        _, _, new_std = decompose(new.detach())
        scale = (new_std / std)[..., None, None]
        torch.testing.assert_close(gradient, weights * scale, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_probability_zero_is_fedavg_to_the_bit():
    plain = federate_images(FedAvg()).weights
    without = federate_images(Combined(FedAvg(), MixStyle(probability=0.0))).weights
    assert torch.equal(without, plain)
    assert not torch.equal(federate_images(MixStyle()).weights, plain)


@pytest.mark.parametrize("setting", ["alpha", "stages"])
def test_each_setting_acts(setting):
    others = {"alpha": 2.0, "stages": [2]}
    usual = federate_images(MixStyle(probability=1.0), rounds=1).weights
    changed = MixStyle(probability=1.0, **{setting: others[setting]})
    assert not torch.equal(federate_images(changed, rounds=1).weights, usual)
