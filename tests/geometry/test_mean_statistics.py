"""Counts and means alone: what the other statistics say of them, and no more."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federatedscope_ggeur.geometry import (
    ClassStatistics,
    MeanStatistics,
    SummedStatistics,
)


def make(seed, n, offset=0.0):
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(offset + rng.normal(size=(n, 6)))
    return ClassStatistics.from_embeddings(
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
    for whole in (sum(parts), sum(map(SummedStatistics.from_classes, parts))):
        alone = sum(map(MeanStatistics.of, parts))
        assert torch.equal(alone.counts, whole.counts)
        assert torch.equal(alone.means, whole.means)
        assert torch.equal(alone.located.low, whole.located.low)


def test_what_was_added_can_be_removed():
    a, b = (MeanStatistics.of(make(seed, 20)) for seed in (1, 2))
    left = a + b - b
    assert torch.equal(left.counts, a.counts)
    assert torch.allclose(left.means, a.means, atol=1e-14)
    nothing = MeanStatistics.empty(4, 6)
    assert nothing.classes == []
    assert torch.equal((a + nothing).means, a.means)


def test_they_do_not_mix_with_others():
    held = make(1, 20)
    with pytest.raises(TypeError):
        MeanStatistics.of(held) + held
    with pytest.raises(TypeError):
        MeanStatistics.of(held) - SummedStatistics.from_classes(held)
