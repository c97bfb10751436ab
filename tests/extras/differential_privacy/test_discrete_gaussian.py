"""The sampler against the probabilities that it must have."""

import numpy as np
import pytest
from scipy import stats

from federatedscope_ggeur.extras.differential_privacy.noisy_release import (
    discrete_gaussian,
    seeded_words,
    system_words,
)


def probabilities(deviation, most):
    """Of -most..most."""
    k = np.arange(-most, most + 1)
    weights = np.exp(-(k**2) / (2 * deviation**2))
    return weights / weights.sum()


def p_value(draws, expected):
    """Chi-squared of whole numbers `draws` against probabilities of -m..m; rare ones
    count together."""
    most = len(expected) // 2
    seen = np.bincount(draws + most, minlength=len(expected)).astype(float)
    wanted = expected * len(draws)
    common = wanted >= 20
    seen = np.append(seen[common], seen[~common].sum())
    wanted = np.append(wanted[common], wanted[~common].sum())
    return stats.chisquare(seen, wanted).pvalue


@pytest.mark.parametrize("deviation", [1, 2, 7])
def test_every_number_has_its_probability(deviation):
    words = seeded_words(np.random.default_rng(deviation))
    draws = discrete_gaussian(20_000, deviation, words)
    assert p_value(draws, probabilities(deviation, 12 * deviation)) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("deviation", [1, 3, 20])
def test_many_draws(deviation):
    words = seeded_words(np.random.default_rng(100 + deviation))
    draws = discrete_gaussian(300_000, deviation, words)
    assert p_value(draws, probabilities(deviation, 12 * deviation)) > 1e-4


@pytest.mark.slow
def test_the_sum_of_clients_is_one_of_their_common_deviation():
    words = seeded_words(np.random.default_rng(1))
    parts = [discrete_gaussian(80_000, 8, words) for _ in range(4)]
    assert p_value(sum(parts), probabilities(16, 200)) > 1e-4


def test_a_fine_grid_is_a_gaussian():
    deviation = 2**31 + 12345
    words = seeded_words(np.random.default_rng(5))
    draws = discrete_gaussian(20_000, deviation, words) / deviation
    assert stats.kstest(draws, "norm").pvalue > 1e-4


def test_words_of_the_system_never_repeat():
    assert not np.array_equal(system_words(4), system_words(4))
    draws = [discrete_gaussian(50, 2**31) for _ in range(2)]
    assert not np.array_equal(*draws)


@pytest.mark.parametrize("deviation", [0, -1, 2**50 + 1])
def test_a_deviation_that_it_cannot_have(deviation):
    with pytest.raises(ValueError, match="deviation"):
        discrete_gaussian(1, deviation)
