"""The min-count threshold: a class of too few samples leaves no trace."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federatedscope_ggeur.federation.exchanges.space import rows_for_totals
from federatedscope_ggeur.federation.exchanges.statistics.upload import (
    StatisticsUpload,
    apply_min_count,
)
from federatedscope_ggeur.geometry import Statistics

# Class c has SIZES[c] samples.
SIZES = (0, 1, 2, 4, 5)
DIM = 6


def make_rows():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(len(SIZES)).repeat_interleave(torch.tensor(SIZES))
    return torch.randn(len(labels), DIM, generator=generator), labels


def upload_with_threshold(min_samples):
    statistics = Statistics.from_embeddings(*make_rows(), len(SIZES))
    return StatisticsUpload(1, "art", apply_min_count(statistics, min_samples))


@pytest.mark.parametrize("min_samples", [1, 2, 5, 6])
def test_bytes_are_those_of_a_client_without_the_withheld_classes(min_samples):
    features, labels = make_rows()
    held = torch.tensor(SIZES)[labels] >= min_samples
    without = Statistics.from_embeddings(features[held], labels[held], len(SIZES))
    data = upload_with_threshold(min_samples).to_bytes()
    assert data == StatisticsUpload(1, "art", without).to_bytes()


def allowed_rows(sizes, min_samples, after_statistics):
    """Classes of the rows that totals are of, where class c has sizes[c] rows."""
    counts = torch.tensor(sizes)
    labels = torch.arange(len(sizes)).repeat_interleave(counts)
    mask = rows_for_totals(labels, counts, min_samples, after_statistics)
    return labels[mask].tolist()


@pytest.mark.parametrize(
    ("sizes", "alone", "beside"),
    [
        # Classes 1 to 3 are withheld, seven rows in all: enough to be told of.
        ((5, 1, 2, 4), [0] * 5 + [1] + [2] * 2 + [3] * 4, [1] + [2] * 2 + [3] * 4),
        # Four withheld rows are too few, whatever else there is.
        ((6, 4), [0] * 6, []),
        ((6, 2, 2), [0] * 6, []),
        # Of no class enough, but of all together.
        ((3, 2), [0] * 3 + [1] * 2, [0] * 3 + [1] * 2),
        ((3, 1), [], []),
        ((5, 5), [0] * 5 + [1] * 5, []),
        ((0, 0), [], []),
    ],
    ids=str,
)
def test_which_rows_totals_are_of(sizes, alone, beside):
    assert allowed_rows(sizes, 5, after_statistics=False) == alone
    assert allowed_rows(sizes, 5, after_statistics=True) == beside


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    min_samples=st.integers(1, 8),
)
def test_no_difference_of_sums_is_over_fewer_rows_than_the_threshold(
    sizes, min_samples
):
    """Whichever of the totals is sent, less what statistics or methods tell of the
    classes that pass: the rest is nobody, or as many rows as the threshold asks."""
    passing = {c for c, n in enumerate(sizes) if n >= min_samples}
    alone = allowed_rows(sizes, min_samples, after_statistics=False)
    beside = allowed_rows(sizes, min_samples, after_statistics=True)
    rest = [c for c in alone if c not in passing]
    assert len(rest) == 0 or len(rest) >= min_samples
    assert sorted(set(alone) - set(rest)) == sorted(passing)
    # Beside statistics the others are not summed a second time.
    assert beside == rest


@settings(deadline=None)
@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_without_a_threshold_totals_are_of_all_rows(sizes):
    assert len(allowed_rows(sizes, 1, after_statistics=False)) == sum(sizes)
    assert allowed_rows(sizes, 1, after_statistics=True) == []
