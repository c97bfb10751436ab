"""From epsilon to the noise: golden values, and an accountant of others as oracle."""

import math

import pytest

from federatedscope_ggeur.extras.differential_privacy.noisy_release import (
    delta_of,
    epsilon_of,
    mu_of,
)

GOLDEN = {1: 0.26805, 2: 0.50155, 4: 0.92493, 8: 1.66603}


@pytest.mark.parametrize("epsilon", GOLDEN)
def test_mu_of_an_epsilon(epsilon):
    assert mu_of(epsilon, 1e-5) == pytest.approx(GOLDEN[epsilon], abs=1e-5)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3, 20, 100])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01])
def test_the_way_back(epsilon, delta):
    mu = mu_of(epsilon, delta)
    assert delta_of(epsilon, mu) == pytest.approx(delta, rel=1e-6)
    assert epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-6)


def test_no_noise_protects_nothing():
    assert epsilon_of(math.inf, 1e-5) == math.inf
    assert epsilon_of(1e4, 1e-5) == math.inf
    assert epsilon_of(0.0, 1e-5) == 0.0


def test_an_accountant_of_others_agrees():
    accounting = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    epsilon, mu = 1, mu_of(1, 1e-5)
    found = accounting.from_gaussian_mechanism(
        1 / mu, value_discretization_interval=1e-5
    )
    assert found.get_delta_for_epsilon(epsilon) == pytest.approx(1e-5, rel=1e-4)
    assert found.get_epsilon_for_delta(1e-5) == pytest.approx(epsilon, abs=1e-6)
