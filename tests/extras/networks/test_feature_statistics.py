"""FedFA's layer and what the server makes of its statistics, beside plain numpy."""

import numpy as np
import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from federatedscope_ggeur.extras.networks.methods.feature_statistics import (
    EPS,
    RunningStatistics,
    client_variances,
    modulated,
    shaken,
)

SHAPE = (3, 4, 2, 2)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def shaken_plainly(x, mean_factor, std_factor, mean_noise, std_noise):
    """Eqs. 2, 4 and 8-10: maps, and the means over rows."""
    mean, std = x.mean(axis=(2, 3)), np.sqrt(x.var(axis=(2, 3)) + EPS)
    new_mean = mean + mean_noise * np.sqrt(mean_factor * mean.var(axis=0) + EPS)
    new_std = std + std_noise * np.sqrt(std_factor * std.var(axis=0) + EPS)
    old, scale, new = (one[:, :, None, None] for one in (mean, new_std / std, new_mean))
    return scale * (x - old) + new, mean.mean(axis=0), std.mean(axis=0)


class TestShaken:
    def test_it_is_that_of_numpy(self):
        factors = [1 + draw(4, seed=seed) ** 2 for seed in (1, 2)]
        given_ = [draw(*SHAPE), *factors, draw(3, 4, seed=3), draw(3, 4, seed=4)]
        found = shaken(*map(torch.tensor, given_))
        for one, other in zip(found, shaken_plainly(*given_)):
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize("shape", [(1, 4, 2, 2), (3, 4, 1, 1), (1, 1, 1, 1)])
    def test_one_row_and_one_pixel_stay_finite(self, shape):
        maps = torch.tensor(draw(*shape)).requires_grad_(True)
        e = torch.ones(shape[:2], dtype=torch.float64)
        new, _, std = shaken(maps, 2.0, 2.0, e, e)
        (gradient,) = torch.autograd.grad(new.square().sum(), maps)
        assert torch.isfinite(new).all()
        assert torch.isfinite(gradient).all()
        if shape[0] == 1:  # nothing varies over the batch: no noise but sqrt(EPS)
            assert (new.mean(dim=(2, 3)) - maps.mean(dim=(2, 3))).abs().max() < 2e-3
        if shape[2] == 1:
            np.testing.assert_allclose(std.numpy(), EPS**0.5)

    @pytest.mark.parametrize("floor", [EPS, 0.25])
    def test_gradients_flow_through_all_of_it(self, floor):
        maps = torch.tensor(draw(*SHAPE)).requires_grad_(True)
        factors = (1 + torch.tensor(draw(4, seed=s)) ** 2 for s in (1, 2))
        noise = (torch.tensor(draw(3, 4, seed=s)) for s in (3, 4))
        fixed = (*factors, *noise, floor)
        assert torch.autograd.gradcheck(lambda x: shaken(x, *fixed)[0], maps)
        alike = (0.0, 0.0, *fixed[2:])
        assert torch.autograd.gradcheck(lambda x: shaken(x, *alike)[0], maps)


class TestRunningStatistics:
    @pytest.mark.parametrize("momentum", [0.0, 0.5, 0.99])
    def test_they_are_those_of_the_recursion(self, momentum):
        running = RunningStatistics(3, momentum)
        mu, sigma = np.zeros(3), np.ones(3)
        for t in range(1, 8):
            mean, std = draw(3, seed=t), draw(3, seed=t + 50) ** 2
            running.add(torch.tensor(mean), torch.tensor(std), 4)
            mu = momentum * mu + (1 - momentum) * mean
            sigma = momentum * sigma + (1 - momentum) * std
            start = momentum**t
            for found, wanted in zip(running.biased, (mu, sigma)):
                np.testing.assert_allclose(found.numpy(), wanted, 1e-5, 1e-6)
            for found, wanted in zip(
                running.debiased, (mu / (1 - start), (sigma - start) / (1 - start))
            ):
                np.testing.assert_allclose(found.numpy(), wanted, 1e-4, 1e-5)
        assert (running.batches, running.rows) == (7, 28)

    @given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.floats(0, 0.99))
    @examples(50)
    def test_the_largest_share_of_a_row(self, sizes, momentum):
        running = RunningStatistics(1, momentum)
        for size in sizes:
            running.add(torch.zeros(1), torch.zeros(1), size)
        ages = range(len(sizes) - 1, -1, -1)
        weights = np.array([momentum**age for age in ages])
        shares = weights / weights.sum() / sizes
        assert running.largest_share == pytest.approx(shares.max(), rel=1e-9)

    def test_before_the_first_batch(self):
        running = RunningStatistics(2, 0.9)
        assert not running.debiased[0].any()
        assert not running.debiased[1].any()
        assert running.biased[1].tolist() == [1.0, 1.0]


class TestServer:
    def test_variances_over_clients_are_channel_by_channel(self):
        """One variance over all channels would make every gamma 1."""
        sent = [torch.tensor(draw(6, seed=k)).float() for k in range(4)]
        found = client_variances(sent)
        for c in range(6):
            values = [float(vector[c]) for vector in sent]
            mean = sum(values) / 4
            wanted = sum((v - mean) ** 2 for v in values) / 4
            assert found[c].item() == pytest.approx(wanted, rel=1e-12)
        gamma = modulated(found)
        assert gamma.max() - gamma.min() > 0.1

    @given(st.lists(st.floats(0, 1e6), min_size=1, max_size=9))
    def test_gammas_sum_to_the_channels(self, variances):
        gamma = modulated(torch.tensor(variances, dtype=torch.float64))
        assert gamma.sum().item() == pytest.approx(len(variances), rel=1e-9)
        order = np.argsort(variances, kind="stable")
        assert (np.diff(gamma.numpy()[order]) >= -1e-12).all()
