"""Counts and means alone: what the other statistics say of them, and no more."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.geometry import (
    Statistics,
)


def make(seed, n, offset=0.0):
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(offset + rng.normal(size=(n, 6)))
    return Statistics.from_embeddings(
        rows, torch.from_numpy(rng.integers(4, size=n)), 4
    )


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=5),
    st.sampled_from([0.0, 1e8]),
)
def test_they_merge_to_the_bits_of_statistics_with_scatters(sizes, offset):
    parts = [make(seed, n, offset) for seed, n in enumerate(sizes)]
    for whole in (sum(parts), sum(part.to("pooled") for part in parts)):
        alone = sum(part.to("means") for part in parts)
        assert torch.equal(alone.counts, whole.counts)
        assert torch.equal(alone.means, whole.means)
        assert torch.equal(alone.located.low, whole.located.low)


def test_what_was_added_can_be_removed():
    a, b = (make(seed, 20).to("means") for seed in (1, 2))
    left = a + b - b
    assert torch.equal(left.counts, a.counts)
    assert torch.allclose(left.means, a.means, atol=1e-14)
    nothing = Statistics.empty(4, 6, "means")
    assert nothing.classes == []
    assert torch.equal((a + nothing).means, a.means)


def test_they_do_not_mix_with_others():
    held = make(1, 20)
    with pytest.raises(StatisticsError, match="no covariance and those with a cov"):
        held.to("means") + held
    with pytest.raises(StatisticsError, match="and those with one covariance for"):
        held.to("means") - held.to("pooled")
